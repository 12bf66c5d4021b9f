"""One function of HIR as a kernel of TIR, without synchronisation and addresses.

Statements keep the author's order. What only renames elements becomes a view, what updates
a value is done in its place (``places``), what moves one is copies (``moves``), every other
operation is one issue of the instruction that the author or ``select`` chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tilefoundry.check.rename import is_rename
from tilefoundry.check.vary import vary
from tilefoundry.diag import refuse
from tilefoundry.ir.mesh import Mesh, Topology
from tilefoundry.ir.node import CALL, CONST, ITEM, Block, Carried, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang.parse import module_context
from tilefoundry.lower.cover import covers
from tilefoundry.lower.lives import operand_count
from tilefoundry.lower.moves import Moves
from tilefoundry.lower.places import Places
from tilefoundry.lower.select import bound_atom, default_unit, types_of
from tilefoundry.lower.storage import Stores
from tilefoundry.lower.united import refuse_united
from tilefoundry.lower.views import (
    VIEWS,
    broadcast,
    fixed,
    forward,
    is_single_term,
    pad_starts,
    reduced_axes,
)
from tilefoundry.ops.base import operands, seen
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
    With,
    walk,
    whole,
    window,
)


def lower_func(module: Module, func: Func, target: Target) -> PrimFunc:
    """``func`` as a kernel; refuses what no instruction of ``target`` carries out."""
    if func.variants:
        refuse("lower-variants", func.span, func=func.name)
    return _Lowering(module, func, target).run()


@dataclass
class _Lowering(Moves):
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
        self.places = Places(self.func, results, self.stores.private())
        self.varies = vary(self.func, module_context(self.module))
        if self.target.in_step:  # elsewhere a thread reads back exactly what it wrote
            refuse_united(self.func, self.varies, self.target)
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
        if not isinstance(value, View) or value.buffer.role == "in":
            return False
        return value.is_whole or value is self.stores.copies.get(value.buffer)

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
        if (
            isinstance(source, View)
            and node in self.places.lives.copies
            and node.op.name != "reshard"
        ):
            return self._solid(node, forward(node, source))
        if node in self.places.of:  # made in place, backwards
            self.home[node] = self.places.of[node]
            return []
        if isinstance(source, Scalar):
            self.home[node] = source
            return []
        if node.op.name == "pad" and source.storage == self.stores.private():
            return self._padded(node, source)
        self.home[node] = source if node.op.name == "reshard" else forward(node, source)
        return []

    def _solid(self, node: Node, view: View) -> list[Stmt]:
        """A view that is updated and has no place for each of its elements, copied to one."""
        if not node.mesh.axes:
            self._no_units(node)
        made = self.home[node] = self.made_in(node)
        if self.target.storages[made.storage].level is None and not self.target.in_step:
            # nothing orders the update behind the copy
            refuse("sync-device-memory", node.span, name=node.name or made.buffer.name)
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

    def _reduce(self, node: Node) -> list[Stmt]:
        source = self.home[node.args[0]]
        assert isinstance(source, View)
        axes = reduced_axes(node)
        private = self.stores.private()
        if self.places.aliases(node):
            self.home[node] = forward(node, source)
            return []
        if is_single_term(node, private):
            return self._solid(node, forward(node, source))
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
