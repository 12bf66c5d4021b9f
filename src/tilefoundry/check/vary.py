"""Which values differ from unit to unit, and on which mesh axes.

A value differs where it is made from a unit's coordinates: by an index expression, a
loop's bounds or ``tf.local``. It belongs to its units: it may be written into a memory
that they share, but neither returned nor used where they are not in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Block, Carried, Loop, Node, Return, Scope, walk
from tilefoundry.ir.program import Func
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.ops import insert_slice
from tilefoundry.ops.base import Context, seen

Axes = frozenset[Axis]
NONE: Axes = frozenset()


def vary(func: Func, context: Context) -> dict[Node, Axes]:
    """The axes on which each value of ``func`` differs between units; none: all agree.

    Refuses a value that differs and is returned (``unit-value-escapes``), that is used
    where its units are not in force (``unit-value-outside``), or that each unit would
    hold only a part of (``unit-value-split``).
    """
    found = _Vary(func, context)
    while found.step():
        pass
    found.judge(func.body, Mesh())
    return found.axes


class _Vary:
    """The least assignment of axes to values that all statements agree with."""

    def __init__(self, func: Func, context: Context) -> None:
        self.context = context
        self.axes: dict[Node, Axes] = dict.fromkeys(func.params, NONE)
        self.loops: dict[Sym, Axes] = {}
        self.stmts = [s for s in walk(func.body) if isinstance(s, (Node, Loop))]
        self.symbols = {s: tuple(symbols_of(s)) for s in self.stmts if isinstance(s, Node)}
        self.through = written_through(func.body)
        stored = (v for v in func.returns.values if v.span == func.returns.span)
        self.stored = {v: v.args[0] for v in stored if v.op.name == "reshard"}
        """What a return stores to device memory: the stored value by its result."""

    def step(self) -> bool:
        """One pass over the statements; whether anything grew that an earlier one reads."""
        grew = False
        for stmt in self.stmts:
            if isinstance(stmt, Node):
                self.axes[stmt] = self._node(stmt)
            else:
                self._enter(stmt)
        for stmt in self.stmts:
            if isinstance(stmt, Loop):
                for carried in stmt.carried:
                    grew |= self._carry(stmt, carried)
        return grew

    def _enter(self, loop: Loop) -> None:
        self.loops[loop.var] = self.index((loop.start, loop.stop, loop.step))
        for c in loop.carried:
            before = self.axes.get(c.head, NONE) | self.axes[c.init]
            self.axes[c.head] = self.axes[c.result] = before

    def _carry(self, loop: Loop, c: Carried) -> bool:
        """Units that run a loop a different number of times end with different values."""
        axes = self.axes[c.head] | self.axes[c.step]
        uneven = self.uneven(loop)
        if not (c in self.through and self.shared(c.head.tensor, uneven)):
            axes |= uneven
        grew = axes != self.axes[c.head]
        self.axes[c.head] = self.axes[c.result] = axes
        return grew

    def uneven(self, loop: Loop) -> Axes:
        """Axes on which the number of steps depends."""
        trips = ix.ceildiv(loop.stop - loop.start, loop.step)
        lo, hi = ix.bounds(trips)
        return NONE if lo == hi or hi <= 0 else self.index((trips,))

    def index(self, values: Iterable[Dim]) -> Axes:
        """Axes on which index expressions depend."""
        return self._of(s for v in values for s in ix.symbols(v))

    def _of(self, symbols: Iterable[Sym]) -> Axes:
        out: set[Axis] = set()
        for s in symbols:
            if isinstance(s, Coord) and s.axis is not None:
                out.add(s.axis)
            else:
                out |= self.loops.get(s, NONE)
        return frozenset(out)

    def shared(self, type: TensorType, axes: Axes) -> bool:
        """The units of ``axes`` see one copy of a value of ``type``."""
        return all(self.context.shared(type.storage, a.level) for a in axes)

    def _node(self, node: Node) -> Axes:
        axes = self.used(node)
        if node.op.name == "insert_slice":
            dst = self.axes[node.args[0]]
            own = own_parts(node)
            if self.shared(node.tensor, axes - dst - own):
                return dst  # writes of all units into their one destination
            return dst | (axes - own)
        return axes

    def used(self, node: Node) -> Axes:
        """Axes on which what a statement reads depends."""
        axes = self._of(self.symbols[node]).union(*(self.axes[a] for a in node.args))
        if node.op.name == "local":
            axes |= {d.axis for d in seen(node.args[0].tensor, node.mesh).digits}
        return axes

    # Refusals

    def judge(self, block: Block, mesh: Mesh) -> None:
        """Refuse values used away from their units, in program order."""
        for stmt in block.stmts:
            match stmt:
                case Node() if stmt in self.stored:
                    pass  # judged as the return that it is a part of
                case Node():
                    axes = self.used(stmt)
                    _in_force(axes, stmt.mesh, stmt.span)
                    self._split(stmt, axes)
                case Scope():
                    self.judge(stmt.body, stmt.mesh)
                case Loop():
                    _in_force(self.loops[stmt.var], mesh, stmt.span)
                    self.judge(stmt.body, mesh)
                case Return():
                    self._returned(stmt)

    def _returned(self, stmt: Return) -> None:
        for value in stmt.values:
            if axes := self.axes[value]:
                name = self.stored.get(value, value).name or "the result"
                refuse("unit-value-escapes", stmt.span, name=name, axes=_words(axes))

    def _split(self, node: Node, axes: Axes) -> None:
        if node.op.name == "insert_slice":  # each unit writes all of what it inserts
            update = node.args[1].tensor
            held = {d.axis for d in seen(update, node.mesh).digits if d.axis.extent > 1}
            both = (held & self._of(self.symbols[node])) - own_parts(node)
            if both:
                refuse("unit-value-split", node.span, type=update, axes=_words(frozenset(both)))
        for type in node.type.items if isinstance(node.type, TupleType) else (node.type,):
            held = {d.axis for d in seen(type, node.mesh).digits if d.axis.extent > 1}
            both = held & self.axes[node]
            if both:
                refuse("unit-value-split", node.span, type=type, axes=_words(frozenset(both)))


def own_parts(node: Node) -> Axes:
    """Axes along which each unit writes just its own part of an ``insert_slice``."""
    dst, update = (seen(a.tensor, node.mesh) for a in node.args)
    offsets: Any = node.attrs["offsets"]
    return insert_slice.own_parts(dst, update, offsets)


def _words(axes: Axes) -> str:
    return " ".join(sorted(a.name for a in axes))


def _in_force(axes: Axes, mesh: Mesh, span: Span | None) -> None:
    for axis in sorted(axes, key=lambda a: (a.level, a.name)):
        if axis.level not in mesh.levels:
            refuse("unit-value-outside", span, axis=axis.name, level=axis.level, mesh=mesh)


def symbols_of(node: Node) -> set[Sym]:
    """Symbols of index expressions in a node's attributes and type."""
    out: set[Sym] = set()
    stack: list[Any] = [node.attrs, node.type]
    while stack:
        value = stack.pop()
        if isinstance(value, Expr):
            out |= ix.symbols(value)
        elif isinstance(value, Mapping):
            stack += value.values()
        elif isinstance(value, (tuple, list)):
            stack += value
        elif isinstance(value, TensorType):
            stack += value.shape
        elif isinstance(value, TupleType):
            stack += value.items
    return out


def written_through(body: Block) -> set[Carried]:
    """Carried values whose step is their head with slices inserted: one destination,
    written in place."""
    loops = [s for s in walk(body) if isinstance(s, Loop)]
    inner: dict[Node, Carried] = {}
    out: set[Carried] = set()
    for loop in reversed(loops):  # inner loops first
        for c in loop.carried:
            at = c.step
            while at is not c.head:
                if at.op.name == "insert_slice":
                    at = at.args[0]
                elif at in inner and inner[at] in out:
                    at = inner[at].init
                else:
                    break
            if at is c.head:
                out.add(c)
            inner[c.result] = c
    return out
