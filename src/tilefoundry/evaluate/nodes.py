"""Statements: one operation for all units that execute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilefoundry.check.vary import own_parts, symbols_of
from tilefoundry.diag import Refusal, refuse
from tilefoundry.evaluate import stack
from tilefoundry.evaluate.batch import alone, arranged, batched, bits_of, together
from tilefoundry.evaluate.bind import concrete
from tilefoundry.evaluate.lanes import ALL, Lanes, Rows, Units, join
from tilefoundry.evaluate.placed import PLACES, Batch, Placed, type_bytes
from tilefoundry.evaluate.trips import Trips
from tilefoundry.evaluate.write import write_in_place
from tilefoundry.ir.expr import Expr, Sym
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.node import CALL, CONST, ITEM, Block, Node, Structural
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.ops.base import Bits, operands, seen, torch_dtype
from tilefoundry.targets.instructions import meaning

if TYPE_CHECKING:
    from tilefoundry.evaluate.run import Evaluator


@dataclass(frozen=True)
class Plan:
    """What of a node does not change from step to step.

    ``symbols`` of all index expressions; ``fixed``: the expressions that must be equal
    for units to be evaluated together; ``attrs`` without those that need not;
    ``split``: the axes whose units hold parts of the operand of ``tf.local``.
    """

    symbols: tuple[Sym, ...]
    fixed: tuple[Expr, ...]
    attrs: Mapping[str, Any]
    split: tuple[Axis, ...]


class Nodes(Placed):
    """Evaluates nodes in a frame."""

    def __init__(
        self, owner: Evaluator, dims: Mapping[Sym, int], body: Block, weights: Mapping[str, Any]
    ) -> None:
        super().__init__(owner, dims, body)
        self.weights = weights
        self._plans: dict[Node, Plan] = {}

    def node(self, node: Node) -> Lanes:
        """The value of a statement, for the units that execute it."""
        plan = self._plans.get(node) or self._planned(node)
        args = [None if a is None else self.values[a] for a in operands(node)]
        axes = join(
            [*(a.axes for a in args if a is not None), self.axes_of(plan.symbols), plan.split]
        )
        levels = node.mesh.levels  # check.vary refuses others
        assert all(isinstance(a, Trips) or a.level in levels for a in axes), node
        units = self.executing(axes, node.mesh)
        try:
            return self._evaluate(node, plan, args, units)
        except Refusal as refusal:
            placed = (d if d.span else replace(d, span=node.span) for d in refusal.diags)
            raise Refusal(*placed) from None

    def _planned(self, node: Node) -> Plan:
        free = "value" if node.op is CONST else PLACES.get(node.op.name)
        attrs = {k: v for k, v in node.attrs.items() if k != free}
        alike: list[Any] = [attrs, node.type, *(a.type for a in node.args)]
        split: tuple[Axis, ...] = ()
        if node.op.name == "local":
            x = seen(node.args[0].tensor, node.mesh)
            split = join((d.axis,) for d in x.digits)
            alike += x.layout.modes if x.layout else ()
        fixed = dict.fromkeys(e for value in alike for e in _expressions(value))
        if node.op.name == "schedule":
            attrs["meaning"] = meaning(node.attrs["op"], node.span)
        symbols = tuple(sorted(symbols_of(node), key=lambda s: s.key))
        plan = self._plans[node] = Plan(symbols, tuple(fixed), attrs, split)
        return plan

    def _evaluate(self, node: Node, plan: Plan, args: list[Lanes | None], units: Units) -> Lanes:
        if node.op.name == "insert_slice":
            dst, update = args
            assert dst is not None and update is not None
            if units is not ALL:
                dst = args[0] = self._per_trip(node, dst, units)
            extra = tuple(a for a in units.axes if a not in dst.axes)
            apart = join([extra, *self.uneven])
            if (extra or dst.owner is not None) and self.shared(node, apart):
                return self.insert(node, dst, update, units)
            own = own_parts(node).union(a for a in extra if isinstance(a, Trips))
            if own.intersection(extra):
                return self.insert(node, self._united(node, dst, units, own), update, units)
        if node.op.name == "slice" and args[0] is not None and args[0].owner is not None:
            readers = self.executing(join([units.axes, *self.uneven]), node.mesh)
            for batch in self._alike(node, plan, readers):
                self.no_race(node, args[0], batch)
        pieces: list[tuple[Rows | None, Any]] = []
        for batch in self._alike(node, plan, units):
            if units is ALL:
                owner = args[0].owner if node.op.name == "reshard" and args[0] else None
                return Lanes(ALL, self._one(node, args, batch), owner)
            if node.op.name == "slice":
                assert args[0] is not None
                pieces.append((batch.rows, self.slice(node, args[0], batch)))
                continue
            pieces += [(p.rows, self._many(node, args, p)) for p in _parts(batch, args)]
        return Lanes(units, stack.assemble(len(units), pieces))

    def _per_trip(self, node: Node, dst: Lanes, units: Units) -> Lanes:
        """The destination with a row per trip, of trips that each have one of their own."""
        local = [a for a in units.axes if isinstance(a, Trips) and a not in dst.axes]
        own = tuple(a for a in local if not self.shared(node, (a,)))
        return self._rowed(dst, self.executing(join([dst.axes, own]), node.mesh)) if own else dst

    def _united(self, node: Node, dst: Lanes, units: Units, own: frozenset[Axis]) -> Lanes:
        """The destination of units that each write their part of it along the axes ``own``: one
        for all of them, and one for each unit of the other axes."""
        holders = self.executing(tuple(a for a in units.axes if a not in own), node.mesh)
        return Lanes(ALL, dst.value) if holders is ALL else self._rowed(dst, holders)

    def _rowed(self, dst: Lanes, holders: Units) -> Lanes:
        """A destination with a row for each of ``holders``, in memory of its own."""
        rows = stack.take(dst, holders, None, self.device)
        if dst.units is ALL:
            rows = stack.repeated(rows, len(holders))
        return Lanes(holders, rows)

    def _alike(self, node: Node, plan: Plan, units: Units) -> Iterator[Batch]:
        """Units by equal attributes and extents, in the order of each batch's first unit."""
        if not plan.fixed:
            yield Batch(units, None, plan.attrs, node.type)
            return
        columns = [self.column(x, units, node.span, f"tf.{node.op.name}") for x in plan.fixed]
        varied = [c for c in columns if isinstance(c, np.ndarray)]
        groups: list[Rows | None] = [None]
        if varied:
            rows = np.stack(varied, axis=1)
            _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            groups = [(group.reshape(-1) == g).nonzero()[0] for g in np.argsort(first)]
        for rows in groups:
            at = 0 if rows is None else rows[0]
            known = {
                x: int(c[at]) if isinstance(c, np.ndarray) else c
                for x, c in zip(plan.fixed, columns, strict=True)
            }
            type = concrete(node.type, known.__getitem__)
            for extent in (e for t in _types(type) for e in t.shape):
                if isinstance(extent, int) and extent < 0:
                    refuse("type-extent", node.span, extent=extent)
            yield Batch(units, rows, concrete(plan.attrs, known.__getitem__), type)

    def _one(self, node: Node, args: list[Lanes | None], batch: Batch) -> Any:
        """A value that is the same for all units."""
        given: list[Any] = [None if a is None else a.value for a in args]
        if node.op is CONST:
            return self._constant(node, batch)
        if node.op is ITEM:
            return given[0][node.attrs["index"]]
        if node.op is CALL:
            return self._call(node, given)
        assert not isinstance(node.op, Structural), node
        op: Any = node.op
        attrs = batch.attrs
        if op.name in PLACES:
            starts = tuple(self.starts(node, ALL))
            if op.name == "insert_slice" and node.args[0] in self.chains.owned:
                dst, update = given
                return write_in_place(dst, update, starts)
            attrs = {**attrs, PLACES[op.name]: starts}
        if op.name == "local":
            attrs = {**attrs, "parts": self._local(node, batch)}
        if bits_of(op, attrs) is not Bits.ELEMENTS:
            given = [arranged(a) for a in given]
        value = op.evaluate(given, attrs, batch.type)
        if op.name == "slice" and node.args[0] in self.chains.owned:
            value = value.clone()  # its memory is written in place
        return _as_typed(node, value, batch.type, ())

    def _many(self, node: Node, args: list[Lanes | None], batch: Batch) -> Any:
        """The values of the batch's units."""
        held = [a is not None and a.units is not ALL for a in args]
        if node.op is CONST:
            return self._constant(node, batch)
        given: list[Any] = [
            None if a is None else stack.take(a, batch.units, batch.rows, self.device) for a in args
        ]
        if node.op is ITEM:
            return given[0][node.attrs["index"]]
        if node.op is CALL:
            return self._calls(node, given, held, batch)
        assert not isinstance(node.op, Structural), node
        op: Any = node.op
        if op.name == "reshard":
            return given[0]
        given = [stack.stacked(a) if h else a for a, h in zip(given, held, strict=True)]
        if op.name == "insert_slice":
            both = zip(given, held, strict=True)
            dst, update = (a if h else a.expand(len(batch), *a.shape) for a, h in both)
            kept = node.args[0] in self.chains.owned and args[0] is not None
            in_place = kept and dst is args[0].value  # type: ignore[union-attr]
            value = self.insert_own(node, dst, update, batch, in_place)
        elif op.name == "local":
            attrs = {**batch.attrs, "parts": self._local(node, batch)}
            value = batched(op, given, held, attrs, batch.type, len(batch))
        else:
            value = self._batched(op, args, given, held, batch)
        return _as_typed(node, value, batch.type, (len(batch),))

    def _batched(
        self, op: Any, args: list[Lanes | None], given: list[Any], held: list[bool], batch: Batch
    ) -> Any:
        """One operation for all units of a batch, its results with the bits that units which run
        their trips in turn would get."""
        bits = bits_of(op, batch.attrs)
        if bits is not Bits.ELEMENTS:
            given = [arranged(a) for a in given]
        trips = [a for a in batch.units.axes if isinstance(a, Trips)]
        if trips and not together(bits, given, held, self.device):
            return self._trip_by_trip(op, args, given, trips, batch)
        if len(batch) == 1:
            return alone(op, given, held, batch.attrs, batch.type, 1)
        return batched(op, given, held, batch.attrs, batch.type, len(batch))

    def _trip_by_trip(
        self, op: Any, args: list[Lanes | None], given: list[Any], trips: list[Trips], batch: Batch
    ) -> Any:
        """Each trip's units by themselves; what differs between trips alone is one value there."""
        numbers = batch.of(batch.units.numbers(trips))
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        held = [a is not None and any(not isinstance(x, Trips) for x in a.axes) for a in args]
        rowed = [a is not None and a.units is not ALL for a in args]
        pieces: list[tuple[Rows | None, Any]] = []
        for rows in np.split(order, cuts):
            of = [
                a if not r else stack.rows_of(a, rows) if h else stack.row(a, int(rows[0]))
                for a, r, h in zip(given, rowed, held, strict=True)
            ]
            of = [None if a is None else arranged(a) for a in of]
            if len(rows) == 1:
                value = alone(op, of, held, batch.attrs, batch.type, 1)
            else:
                value = batched(op, of, held, batch.attrs, batch.type, len(rows))
            pieces.append((rows, value))
        return stack.assemble(len(batch), pieces)

    def _constant(self, node: Node, batch: Batch) -> Any:
        import torch

        value: Any = node.attrs["value"]
        value = batch.of(self.column(value, batch.units, node.span, "tf.const"))
        made = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        if batch.units is not ALL and not isinstance(value, np.ndarray):
            made = made.expand(len(batch))
        return made.to(torch_dtype(node.tensor.dtype))

    def _local(self, node: Node, batch: Batch) -> Any:
        """Per logical axis its modes' extents, and the units' coordinates where one is split."""
        x = seen(node.args[0].tensor, node.mesh)
        if x.layout is None:
            return ()
        out: list[Any] = []
        for group in x.layout.groups(x.shape):
            modes = (
                self.column(x.layout.modes[m], batch.units, node.span, "tf.local") for m in group
            )
            extents = [int(batch.of(e)[0]) if isinstance(e, np.ndarray) else e for e in modes]
            bound = [x.layout.axes[m] for m in group]
            picks = [None if a is None else batch.of(batch.units.column(a)) for a in bound]
            out.append((extents, picks))
        return tuple(out)

    def _calls(self, node: Node, args: list[Any], held: list[bool], batch: Batch) -> Any:
        """A function, once per unit."""
        pairs = list(zip(args, held, strict=True))
        each = [
            self._call(node, [stack.row(a, n) if h else a for a, h in pairs])
            for n in range(len(batch))
        ]
        if isinstance(batch.type, TensorType):
            return each
        return tuple(list(item) for item in zip(*each, strict=True))

    def _call(self, node: Node, args: list[Any]) -> Any:
        name = str(node.attrs["func"])
        func = self.owner.module.funcs[name]
        names: Any = node.attrs["names"]
        named: dict[str, Any] = dict(zip(names, args, strict=True))
        inputs = [named[p.name] for p in func.params if p.name not in func.weights]
        weights = {**self.weights, **{n: v for n, v in named.items() if n in func.weights}}
        out = self.owner.run(func, inputs, weights)
        return out if isinstance(node.type, TupleType) else out[0]


def _parts(batch: Batch, args: list[Lanes | None]) -> Iterator[Batch]:
    """The batch, in as many as its memory asks for."""
    sizes = [stack.unit_bytes(a.value) for a in args if a is not None and a.units is not ALL]
    most = max([1, *sizes, *(type_bytes(t) for t in _types(batch.type))])
    step = max(1, stack.LIMIT // most)
    if step >= len(batch):
        yield batch
        return
    rows = np.arange(len(batch)) if batch.rows is None else batch.rows
    for start in range(0, len(batch), step):
        yield replace(batch, rows=rows[start : start + step])


def _types(type: Any) -> tuple[TensorType, ...]:
    return type.items if isinstance(type, TupleType) else (type,)


def _expressions(value: Any) -> Iterator[Expr]:
    """Index expressions in attributes or a type."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, TensorType):
        yield from _expressions(value.shape)
    elif isinstance(value, TupleType):
        yield from _expressions(value.items)
    elif isinstance(value, Mapping):
        for v in value.values():
            yield from _expressions(v)
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _expressions(v)


def _as_typed(node: Node, value: Any, type: Any, lead: tuple[int, ...]) -> Any:
    """The evaluated value has the derived shape and dtype, or the operation is wrong."""
    values = value if isinstance(type, TupleType) else (value,)
    for v, t in zip(values, _types(type), strict=True):
        rows, shape = (v, t.shape) if isinstance(v, list) else ((v,), (*lead, *t.shape))
        for r in rows:
            assert tuple(r.shape) == shape and r.dtype == torch_dtype(t.dtype), (
                f"{node.op.name}: {tuple(r.shape)} {r.dtype} for {t}"
            )
    return value
