"""One function of HIR as a kernel of TIR, without synchronisation and addresses.

Statements keep the author's order. What only renames elements becomes a view, what updates
a value is done in its place (``places``), every other operation is one issue of the
instruction that the author or ``select`` chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tilefoundry.check.rename import is_rename
from tilefoundry.check.vary import vary
from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import U8
from tilefoundry.ir.expr import LoopVar, symbols
from tilefoundry.ir.mesh import Axis, Mesh, Topology
from tilefoundry.ir.node import CALL, CONST, ITEM, Block, Carried, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang.parse import module_context
from tilefoundry.lower.across import Across
from tilefoundry.lower.cover import covers
from tilefoundry.lower.lives import is_kept, operand_count
from tilefoundry.lower.places import Places
from tilefoundry.lower.select import bound_atom, default_unit, types_of
from tilefoundry.lower.storage import Stores, coordinate
from tilefoundry.lower.views import (
    VIEWS,
    apart,
    broadcast,
    fixed,
    forward,
    pad_starts,
    single_term,
)
from tilefoundry.ops.base import operands, seen
from tilefoundry.targets.contract.multicast import shared_axes
from tilefoundry.targets.contract.unit import CLUSTER, scope_of, scratch_bytes, workspace_bytes
from tilefoundry.targets.instructions import TILED, meaning
from tilefoundry.targets.target import Target
from tilefoundry.tir.program import (
    Advance,
    Buffer,
    For,
    Issue,
    Operand,
    PrimFunc,
    Scalar,
    Stmt,
    View,
    When,
    With,
    walk,
    whole,
    window,
)

PLACEMENT = ("type", "op", "layout", "storage")
"""Attributes of HIR that the views of TIR say."""


def lower_func(module: Module, func: Func, target: Target) -> PrimFunc:
    """``func`` as a kernel; refuses what no instruction of ``target`` carries out."""
    if func.variants:
        refuse("lower-variants", func.span, func=func.name)
    return _Lowering(module, func, target).run()


@dataclass
class _Lowering(Across):
    module: Module
    func: Func
    target: Target
    home: dict[Node, Operand] = field(default_factory=dict)
    items: dict[Node, tuple[View, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stores = Stores(self.target)

    def run(self) -> PrimFunc:
        params = tuple(self._param(p) for p in self.func.params)
        results = tuple(
            self.stores.new(v.tensor, self._result_name(n), "out", v.mesh)
            for n, v in enumerate(self.func.returns.values)
        )
        self.places = Places(self.func, results)
        self.varies = vary(self.func, module_context(self.module))
        body = self.block(self.func.body)
        made = PrimFunc(
            self.func.name,
            (*params, *results),
            tuple(self.stores.buffers),
            (),
            body,
            self.target,
            _named(self.module.topologies, body, self.target),
            counters=tuple(self.stores.counters.values()),
            span=self.func.span,
        )
        for issue in (stmt for stmt, _ in walk(body) if isinstance(stmt, Issue)):
            for view in issue.writes:
                if view.buffer.role == "in":
                    refuse("lower-parameter", issue.span, name=view.buffer.name)
        for fill in self.places.filled:
            read = self.places.lives.is_read(fill)
            if read or not covers(made, self.places.of[fill].buffer):
                refuse("lower-fill", fill.span, name=fill.name or "the result")
        return made

    def _result_name(self, n: int) -> str:
        value = self.func.returns.values[n]
        if value.op.name == "reshard" and not value.name:
            value = value.args[0]
        return value.name or (f"out{n}" if n else "out")

    def _param(self, param: Node) -> Buffer:
        made = self.stores.new(param.tensor, param.name, "in", Mesh(), 1, param.span)
        self.home[param] = whole(made)
        return made

    def made_in(self, node: Node, slots: int = 1) -> View:
        """The view that ``node`` is made in: its decided place, or a buffer of its own."""
        if node in self.places.of:
            return self.places.of[node]
        return self.stores.own(node.tensor, node.name or node.op.name, node, slots)

    # Statements

    def block(self, block: Block) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in block.stmts:
            match stmt:
                case Node():
                    out += self.node(stmt)
                case Scope():
                    body = self.block(stmt.body)
                    if body:
                        out.append(With(stmt.own, stmt.mesh, stmt.binding, body, stmt.source,
                                        stmt.span))  # fmt: skip
                case Loop():
                    out += self.loop(stmt)
                case Return():
                    pass
        return tuple(out)

    def loop(self, loop: Loop) -> list[Stmt]:
        out: list[Stmt] = []
        for c in loop.carried:
            start = self.home[c.init]
            if c.head in self.places.of:
                place = self.places.of[c.head]
            elif self.places.share(c) and self._writable(start):
                assert isinstance(start, View)
                place = start
                self.places.settle(c, place)
            else:
                place = self.stores.own(c.head.tensor, c.name, c.init)
                if self.places.share(c):
                    self.places.settle(c, place)
            if place is not start:
                out += self._copied(start, place, c.init)
            self.home[c.head] = self.home[c.result] = place
        self.stores.loops.append(loop)
        body = list(self.block(loop.body))
        self.stores.loops.pop()
        body += self._moved(loop.carried)
        if loop.var in self.stores.counters:
            body.append(Advance(self.stores.counters[loop.var]))
        out.append(For(loop.var, loop.start, loop.stop, loop.step, tuple(body), span=loop.span))
        return out

    def _writable(self, value: Operand) -> bool:
        return isinstance(value, View) and value.buffer.role != "in" and value.is_whole

    def _moved(self, carried: Sequence[Carried]) -> list[Stmt]:
        """New values into the places of the loop's carried values, all read before written."""
        out: list[Stmt] = []
        pending: list[tuple[View, Operand, Node]] = []
        for c in carried:
            place, value = self.home[c.head], self.home[c.step]
            assert isinstance(place, View)
            if value is not place:
                pending.append((place, value, c.step))
        places = {place.buffer for place, _, _ in pending}
        for n, (place, value, step) in enumerate(pending):
            if isinstance(value, View) and value.buffer in places:
                spare = self.stores.own(step.tensor, f"{place.buffer.name}_next", step)
                out += self._copied(value, spare, step)
                pending[n] = (place, spare, step)
        for place, value, step in pending:
            out += self._copied(value, place, step)
        return out

    def _copied(self, value: Operand, place: View, node: Node) -> list[Stmt]:
        """``value`` stored to ``place`` by the units of ``node``."""
        if not node.mesh.axes:
            self._no_units(node)
        if isinstance(value, Scalar):
            issue = Issue("fill", (value,), (place,), {"op": "fill"}, node.span, node.name)
        else:
            issue = Issue("copy", (value,), (place,), {"op": "copy"}, node.span, node.name)
        return [self._within(node.mesh, issue)]

    def _no_units(self, node: Node) -> NoReturn:
        """Refuse an operation outside every mesh, showing a scope of the target's own levels."""
        declared = [t.level for t in self.module.topologies]
        first, *rest = declared or self.target.levels[-2:]
        scope = f'with Mesh(("{first}",), layout=(...), names=(...)) as {first}:'
        inner = f", and {' and '.join(rest)} scopes inside it" if rest else ""
        refuse("lower-no-units", node.span, op=f"tf.{node.op.name}", scope=scope + inner)

    @staticmethod
    def _within(mesh: Mesh, *body: Stmt) -> Stmt:
        return With(mesh, mesh, "", body)

    # Operations

    def node(self, node: Node) -> list[Stmt]:
        if node.op is CONST:
            value: Any = node.attrs["value"]
            self.home[node] = Scalar(value, node.tensor.dtype)
            return []
        if node.op is CALL:
            refuse("lower-host", node.span, func=self.func.name)
        if node.op is ITEM:
            self.home[node] = self.items[node.args[0]][node.attrs["index"]]  # type: ignore[index]
            return []
        if isinstance(node.type, TupleType):
            return self._tuple(node)
        name = node.op.name
        if name == "empty":
            self.home[node] = self.made_in(node, node.attrs.get("buffers", 1))  # type: ignore[arg-type]
            return []
        if name in VIEWS:
            return self._view(node)
        if not node.mesh.axes and name in ("zeros", "full_like") and node in self.places.of:
            self.home[node] = self.places.of[node]
            self.places.filled.append(node)
            return []
        if not node.mesh.axes:
            if name == "reshard" and is_rename(node):
                return self._view(node)
            self._no_units(node)
        handler = getattr(self, f"_{name}", None) or self._unit
        return handler(node)

    def _view(self, node: Node) -> list[Stmt]:
        source = self.home[node.args[0]]
        if node in self.places.of:  # made in place, backwards
            self.home[node] = self.places.of[node]
            return []
        if isinstance(source, Scalar):
            self.home[node] = source
            return []
        if node.op.name == "pad" and source.storage == self.stores.private():
            return self._padded(node, source)
        if node in self.places.lives.copies and node.op.name != "reshard":
            return self._solid(node, forward(node, source))
        self.home[node] = source if node.op.name == "reshard" else forward(node, source)
        return []

    def _solid(self, node: Node, view: View) -> list[Stmt]:
        """A view that is updated and has no place for each of its elements, copied to one."""
        if not node.mesh.axes:
            self._no_units(node)
        made = self.home[node] = self.made_in(node)
        return self._copy(node, node.args[0].tensor, node.args[0], view, made)

    def _padded(self, node: Node, source: View) -> list[Stmt]:
        """Registers hold what surrounds a value too: filled, then the value within."""
        made = self.stores.own(node.tensor, node.name or "pad", node)
        self.home[node] = made
        filling = Scalar(node.attrs.get("value", 0), node.tensor.dtype)  # type: ignore[arg-type]
        lead = pad_starts(node, len(made.shape))
        part = window(made, lead, source.shape)
        kept = {"op": "copy"}
        return [
            Issue("fill", (filling,), (made,), {"op": "fill"}, node.span, node.name),
            Issue("copy", (source,), (part,), kept, node.span, node.name),
        ]

    def _tuple(self, node: Node) -> list[Stmt]:
        """``split``: each part a window of the operand."""
        source = self.home[node.args[0]]
        assert isinstance(node.type, TupleType)
        if node.op.name != "split" or not isinstance(source, View):
            refuse("lower-op", node.span, op=f"tf.{node.op.name}",
                   why="no instruction of the target carries it out as a whole")  # fmt: skip
        axis: int = node.attrs["axis"] % len(source.shape)  # type: ignore[operator]
        at, parts = 0, []
        for type in node.type.items:
            shape = fixed(type.shape, node.span)
            starts = tuple(at if n == axis else 0 for n in range(len(shape)))
            parts.append(window(source, starts, shape))
            at += shape[axis]
        self.items[node] = tuple(parts)
        return []

    def _issue(
        self, node: Node, path: str, reads: Sequence[Operand], write: View, **attrs: Any
    ) -> list[Stmt]:
        self.home[node] = write
        kept = {k: v for k, v in node.attrs.items() if k not in PLACEMENT}
        return [Issue(path, tuple(reads), (write,), {**kept, **attrs}, node.span, node.name)]

    def _zeros(self, node: Node) -> list[Stmt]:
        zero = Scalar(0, node.tensor.dtype)
        return self._issue(
            node, default_unit(self.target, node), (zero,), self.made_in(node), op="fill"
        )

    def _full_like(self, node: Node) -> list[Stmt]:
        value: Any = node.attrs["value"]
        reads = (Scalar(value, node.tensor.dtype),)
        return self._issue(
            node, default_unit(self.target, node), reads, self.made_in(node), op="fill"
        )

    def _arange(self, node: Node) -> list[Stmt]:
        path = default_unit(self.target, node)
        return self._issue(node, path, (), self.made_in(node), op="arange")

    def _insert_slice(self, node: Node) -> list[Stmt]:
        place, update = (self.home[a] for a in node.args)
        assert isinstance(place, View)
        decided = self.places.of.get(node)
        if decided is not None and place is not decided:
            refuse("lower-clobbered", node.span, name=node.args[0].name or "the destination")
        shape = fixed(node.args[1].tensor.shape, node.span)
        part = window(place, node.attrs["offsets"], shape)  # type: ignore[arg-type]
        self._keeps(node, part)
        self.home[node] = place
        if node in self.places.in_slice and isinstance(update, View):
            return []
        if isinstance(update, Scalar):
            return [Issue("fill", (update,), (part,), {"op": "fill"}, node.span, node.name)]
        out: list[Stmt] = []
        value = node.args[1]
        if update.buffer is place.buffer and not apart(update, part):
            spare = self.stores.own(value.tensor, f"{place.buffer.name}_part", node)
            out += self._copy(node, value.tensor, value, update, spare)
            update = spare
        there = node.tensor.with_(shape=value.tensor.shape, layout=None)
        given = seen(value.tensor, node.mesh)
        if self.target.storages[there.storage].level is None:
            (update, part, _), = self._parts(node, given, there, update, part)
        return out + self._copy(node, value.tensor, value, update, part)

    def _copy(
        self, node: Node, type: TensorType, value: Node, source: Operand, place: View
    ) -> list[Stmt]:
        """A plain copy."""
        issue = Issue("copy", (source,), (place,), {"op": "copy"}, node.span, node.name)
        return [self._once(node, type, value, issue)]

    def _once(self, node: Node, type: TensorType, value: Node, issue: Issue) -> Stmt:
        """A copy of ``value``; where whole owners of the storage would store the same, one
        does."""
        out: Stmt = issue
        for axis in self._twins(node, type, value, issue.writes[0]):
            out = When(1 - coordinate(axis), (out,))
        return out

    def _twins(self, node: Node, type: TensorType, value: Node, place: View) -> list[Axis]:
        """Axes outside the innermost level whose units hold one value and store it to one
        place of the device."""
        if self.target.storages[place.storage].level is not None:
            return []
        held = {d.axis for d in seen(type, node.mesh).digits} | self.varies[value]
        held |= self.stores.moved_by(place)
        level = self.target.levels[-1]
        return [a for a in node.mesh.axes if a.level != level and a.extent > 1 and a not in held]

    def _keeps(self, node: Node, part: View) -> None:
        """Refuses an update, of ``part``, that destroys what is still to be read."""
        lives = self.places.lives
        for found in lives.clobbered(node):
            by: Node | None = found.use.by
            while by is not None and by not in self.home:  # a view that is made later
                by = lives.source(by)
            read = self.home[by] if by is not None else None
            moves = any(isinstance(s, LoopVar) for i in part.index for s in symbols(i))
            if moves or not isinstance(read, View) or not apart(read, part):
                name = found.value.name or found.use.by.name or "the destination"
                refuse("lower-clobbered", node.span, name=name)

    def _reshard(self, node: Node) -> list[Stmt]:
        source = self.home[node.args[0]]
        before = seen(node.args[0].tensor, node.mesh)
        after = node.tensor
        dropped = [p for p in before.partial if p not in after.partial]
        if dropped:
            return self._complete(node, source, before, dropped)
        kept = is_kept(node) and node not in self.places.lives.copies
        if node not in self.places.of and (kept or is_rename(node)):
            self.home[node] = source
            return []
        if isinstance(source, View) and source is self.places.of.get(node):
            self.home[node] = source
            return []
        self._held(node, before, after)
        made = self.made_in(node)
        if isinstance(source, Scalar):
            return self._issue(node, "fill", (source,), made, op="fill")
        self.home[node] = made
        return self._brought(node, before, node.args[0], source, made)

    def _brought(
        self, node: Node, before: TensorType, value: Node, source: View, made: View
    ) -> list[Stmt]:
        """``value``, of type ``before``, from where it lies to where the reshard ``node`` wants
        it."""
        out: list[Stmt] = []
        for read, write, attrs in self._parts(node, before, node.tensor, source, made):
            if attrs:
                out.append(Issue("copy", (read,), (write,), {"op": "copy", **attrs}, node.span,
                                 node.name))  # fmt: skip
            else:
                out += self._copy(node, before, value, read, write)
        return out

    def _held(self, node: Node, before: TensorType, after: TensorType) -> None:
        """Whoever has a copy of the storage of ``after`` to itself already holds in registers
        what is to lie there: a split over such units may be dropped by no copy."""
        levels, level = self.target.levels, self.target.storages[after.storage].level
        if before.storage != self.stores.private() or level is None:
            return
        alone = levels[: levels.index(level) + 1]
        missing = [d for d in before.digits if d not in after.digits and d.axis.extent > 1
                   and d.axis.level in alone]  # fmt: skip
        if missing:
            refuse("lower-exchange", node.span, axis=missing[0].axis.name, before=before,
                   after=after)  # fmt: skip

    def _complete(
        self, node: Node, source: Operand, before: TensorType, dropped: Sequence[tuple[Axis, str]]
    ) -> list[Stmt]:
        """A partial value combined over the axes it is partial on."""
        kinds = {kind for _, kind in dropped}
        if len(kinds) > 1:
            refuse("lower-op", node.span, op="tf.reshard", why="it combines in two different ways")
        over = tuple(axis for axis, _ in dropped)
        scope = scope_of(node.mesh, over, self.target.levels[-1])
        combined = before.with_(
            layout=None if before.layout is None else _without_partial(before.layout, dropped)
        )
        self._held(node, combined, node.tensor)
        # whoever gives a term of an element takes the element, then each keeps its own
        direct = node.tensor.storage == self.stores.private() and (
            scope == CLUSTER or not any(d.axis in over for d in node.tensor.digits)
        )
        place = self.made_in(node) if direct else self.stores.own(combined, node.name, node)
        out: list[Stmt] = []
        if scope == CLUSTER:
            out, source, over = self._terms(node, source, combined, over, next(iter(kinds)))
        attrs = {"op": "combine", "kind": next(iter(kinds)), "scope": scope, "over": over}
        attrs |= self._meeting(node, over, combined) if scope != CLUSTER else {}
        out.append(Issue("reduce", (source,), (place,), attrs, node.span, node.name))
        self.home[node] = place
        if not direct:
            made = self.home[node] = self.made_in(node)
            out += self._brought(node, combined, node, place, made)
        return out

    def _meeting(self, node: Node, over: tuple[Axis, ...], result: TensorType) -> dict[str, Any]:
        """The memory through which units combine: scratch of each CTA, workspace of the grid."""
        out: dict[str, Any] = {}
        level = self.target.levels[-1]
        shared = next((n for n in self.target.storages if self.stores.owner(n)), None)
        for key, size, storage, role in (
            ("scratch", scratch_bytes(node.mesh, over, result, level), shared, "local"),
            ("workspace", workspace_bytes(node.mesh, over, result, level), "gmem", "work"),
        ):
            if size and storage is not None:
                made = Buffer(self.stores.fresh(key), (size,), U8, storage, role=role,
                              mesh=node.mesh, span=node.span)  # fmt: skip
                self.stores.buffers.append(made)
                out[key] = made
        return out

    def _reduce(self, node: Node) -> list[Stmt]:
        source = self.home[node.args[0]]
        assert isinstance(source, View)
        rank = len(source.shape)
        axes = tuple(sorted(a % rank for a in node.attrs["axes"]))  # type: ignore[union-attr]
        private = self.stores.private()
        alone = single_term(node, source, axes) if node.tensor.storage != private else None
        if alone is not None:
            self.home[node] = alone
            return []
        if any(d.dim in axes for d in self._owned(seen(node.args[0].tensor, node.mesh), node)):
            why = "its terms lie in several shared memories: tf.reshard to rmem first"
            refuse("lower-op", node.span, op="tf.reduce", why=why)
        path = default_unit(self.target, node)
        if node.tensor.storage == private:
            made = self.made_in(node)
            return self._issue(node, path, (source,), made, op="reduce", axes=axes, scope=None)
        # units reduce what they read into registers; what is stated elsewhere is stored
        type = TensorType(node.tensor.shape, node.tensor.dtype, None, private)
        held = self.stores.own(type, f"{node.name or 'reduced'}_held", node)
        out = self._issue(node, path, (source,), held, op="reduce", axes=axes, scope=None)
        place = self.home[node] = self.made_in(node)
        return out + self._copy(node, type, node, held, place)

    def _unit(self, node: Node) -> list[Stmt]:
        """An elementwise operation of each unit on what it holds."""
        path = default_unit(self.target, node)
        reads = tuple(self._operand(n, node) for n in operands(node) if n is not None)
        return self._issue(node, path, reads, self.made_in(node), op=node.op.name)

    def _operand(self, arg: Node, node: Node) -> Operand:
        value = self.home[arg]
        if isinstance(value, Scalar):
            return value
        return broadcast(value, fixed(node.tensor.shape, node.span))

    def _schedule(self, node: Node) -> list[Stmt]:
        instr: Any = node.attrs["op"]
        kind, attrs = meaning(instr, node.span)
        values = [self.home[a] for a in node.args]
        if kind == "mma":
            return self._mma(node, values)
        params = dict(instr.params)
        if kind == "copy":
            source, place = values
            assert isinstance(place, View)
            self._keeps(node, place)
            for name in ("order", "prefetch"):
                if node.attrs.get(name) is not None:
                    params[name] = node.attrs[name]
            self.home[node] = place
            return self._carried(node, instr.path, {**params, "op": "copy"}, source, place)
        arity = operand_count(kind)
        place = values[arity] if len(values) > arity else self.made_in(node)
        assert isinstance(place, View)
        if len(values) > arity:
            self._keeps(node, place)
        reads = tuple(self._operand(a, node) for a in node.args[:arity])
        if kind == "reduce":
            return self._reduce(node)
        op = attrs.get("kind", kind) if kind in ("unary", "binary") else kind
        self.home[node] = place
        return [Issue(instr.path, reads, (place,), {**attrs, "op": str(op)}, node.span, node.name)]

    def _carried(
        self, node: Node, path: str, attrs: dict[str, Any], source: Operand, place: View
    ) -> list[Stmt]:
        """A scheduled copy: of what each owner of a storage has, or of a tile for several."""
        taken, made = (a.tensor for a in node.args)
        parts: list[tuple[Operand, View, dict[str, Any]]] = [(source, place, {})]
        if isinstance(source, View):
            self._held(node, seen(taken, node.mesh), made)
            parts = [*self._parts(node, seen(taken, node.mesh), made, source, place)]
        axes = shared_axes(node.mesh, self.stores.owner(place.storage), self.varies[node.args[0]],
                           made, self.stores.loops)  # fmt: skip
        out: list[Stmt] = []
        for read, write, peer in parts:
            if peer and path != "copy":
                refuse("lower-exchange", node.span, axis=peer["over"][0].name, before=taken,
                       after=made)  # fmt: skip
            issue = Issue(path, (read,), (write,), {**attrs, **peer}, node.span, node.name)
            if not peer:
                issue = self._multicast(issue, node.mesh, axes)
            out.append(self._once(node, taken, node.args[0], issue))
        return out

    def _mma(self, node: Node, values: Sequence[Operand]) -> list[Stmt]:
        acc, lhs, rhs = values
        assert isinstance(acc, View)
        decided = self.places.of.get(node)
        if decided is not None and acc is not decided:
            refuse("lower-clobbered", node.span, name=node.args[0].name or "the accumulator")
        self._keeps(node, acc)
        types = [t for t in types_of(node) if t is not None]
        atom, fit = bound_atom(self.target, node, types)
        self.home[node] = acc
        order = node.attrs.get("order") or (0, 1, 2)
        attrs = {
            "atom": atom,
            "repeat": fit.repeat,
            "serial": fit.serial,
            "order": order,
            "op": "mma",
        }
        if node.attrs.get("prefetch") is not None:
            attrs["prefetch"] = node.attrs["prefetch"]
        return [Issue(TILED, (acc, lhs, rhs), (acc,), attrs, node.span, node.name)]


def _without_partial(
    layout: ShardLayout, dropped: Sequence[tuple[Axis, str]]
) -> ShardLayout | None:
    kept = tuple(p for p in layout.partial if p not in dropped)
    out = ShardLayout(layout.shape, layout.stride, layout.axes, kept, layout.swizzle, layout.offset)
    return None if out.is_plain else out


def _named(
    topologies: Sequence[Topology], body: tuple[Stmt, ...], target: Target
) -> tuple[Topology, ...]:
    """As many units of each level as the kernel's meshes name, which are those that run it; those
    declared where none is named, and all lanes of a core, which go in step."""
    out: list[Topology] = []
    for t in topologies:
        named = [max(s.mesh.units(t.level)) + 1 for s, _ in walk(body)
                 if isinstance(s, With) and s.mesh.at(t.level)]  # fmt: skip
        inner = target.in_step and t.level == target.levels[-1]
        out.append(Topology(t.level, max(named)) if named and not inner else t)
    return tuple(out)
