"""Storage for the values of a kernel: buffers, the part that each owner holds, ring slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilefoundry.ir.expr import Dim, Expr, LoopVar, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Loop, Node
from tilefoundry.ir.shard import ShardLayout, refill
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import compact_strides
from tilefoundry.lower.rings import ring_count
from tilefoundry.lower.views import fixed, own_digits, without
from tilefoundry.ops.base import seen
from tilefoundry.targets.target import Target
from tilefoundry.tir.program import Buffer, Counter, View, fresh_vars, whole


@dataclass
class Stores:
    """The buffers of one kernel as they are made; ``loops`` are those around the statement
    at hand, ``copies`` a unit's own copy of device memory, in whole."""

    target: Target
    buffers: list[Buffer] = field(default_factory=lambda: list[Buffer]())
    names: set[str] = field(default_factory=lambda: set[str]())
    loops: list[Loop] = field(default_factory=lambda: list[Loop]())
    counters: dict[LoopVar, Counter] = field(default_factory=lambda: dict[LoopVar, Counter]())
    copies: dict[Buffer, View] = field(default_factory=lambda: dict[Buffer, View]())

    def fresh(self, name: str) -> str:
        name = name or "value"
        made, n = name, 2
        while made in self.names:
            made, n = f"{name}_{n}", n + 1
        self.names.add(made)
        return made

    def new(
        self, type: TensorType, name: str, role: str, mesh: Mesh, slots: int = 1, span: Any = None
    ) -> Buffer:
        """Storage for a value of ``type``, as much of it as one owner of the storage holds."""
        shape = fixed(type.shape, span)
        layout = type.layout
        if type.storage != self.private() and layout is not None:
            # who wrote what does not say where it lies
            layout = ShardLayout(layout.shape, layout.stride, (None,) * len(layout.modes),
                                 (), layout.swizzle, layout.offset)  # fmt: skip
            layout = None if layout.is_plain else _strided(layout)
        return Buffer(self.fresh(name), shape, type.dtype, type.storage, layout, role, slots,
                      mesh=mesh, span=span)  # fmt: skip

    def private(self) -> str:
        """The storage that each unit of the innermost level has to itself."""
        level = self.target.levels[-1]
        return next(n for n, s in self.target.storages.items() if s.level == level)

    def own(self, type: TensorType, name: str, node: Node, slots: int = 1) -> View:
        digits = own_digits(type, node.mesh, self.owners(type.storage))
        if type.storage == "gmem" and node.mesh.axes:
            return self.workspace(type, name, node)
        if not any(digits):
            made = self.new(type, name, "local", node.mesh, slots, node.span)
            self.buffers.append(made)
            return whole(made, self.slot(node, slots))
        # each owner of the storage holds its part: logical coordinates lose the owner's digits
        shape = fixed(type.shape, node.span)
        held = tuple(
            _quotient(extent, [d.axis for d in mine])
            for extent, mine in zip(shape, digits, strict=True)
        )
        layout = _part_layout(type, {d.axis for mine in digits for d in mine})
        part = TensorType(held, type.dtype, layout, type.storage)
        made = self.new(part, name, "local", node.mesh, slots, node.span)
        self.buffers.append(made)
        vars = fresh_vars(shape)
        at = tuple(without(v.expr(), mine) for v, mine in zip(vars, digits, strict=True))
        return View(made, shape, vars, at, self.slot(node, slots))

    def owner(self, storage: str) -> str | None:
        """The level whose units each have their own copy of ``storage``, unless innermost."""
        level = self.target.storages[storage].level
        return None if level in (None, self.target.levels[-1]) else level

    def owners(self, storage: str) -> tuple[str, ...]:
        """The levels whose units each have their own copy of ``storage``, unless innermost: a
        unit of one is no unit of another's."""
        levels, level = self.target.levels, self.owner(storage)
        return () if level is None else tuple(levels[: levels.index(level) + 1])

    def workspace(self, type: TensorType, name: str, node: Node) -> View:
        """Device memory inside a kernel: one copy for each unit that may make its own value."""
        axes = [a for a in node.mesh.axes if a.level != self.target.levels[-1]]
        split = {d.axis for d in type.digits}
        if node.op.name == "reshard":  # one value, of which each unit stores its part
            split |= {d.axis for d in seen(node.args[0].tensor, node.mesh).digits}
        own = [a for a in axes if a not in split]
        shape = fixed(type.shape, node.span)
        layout = _leading(type, [a.extent for a in own])
        lead = tuple(a.extent for a in own)
        whole_type = TensorType((*lead, *shape), type.dtype, layout, type.storage)
        made = self.new(whole_type, name, "work", node.mesh, 1, node.span)
        self.buffers.append(made)
        vars = fresh_vars(shape)
        at = (*(coordinate(a) for a in own), *(v.expr() for v in vars))
        self.copies[made] = View(made, shape, vars, at)
        return self.copies[made]

    def moved_by(self, view: View) -> set[Axis]:
        """Axes on whose coordinates the place of a view depends, by itself or by the loops
        around the statement at hand."""
        moved = {s for i in (*view.index, view.slot) for s in symbols(i)}
        for loop in reversed(self.loops):
            if loop.var in moved:
                moved |= {s for x in (loop.start, loop.step) for s in symbols(x)}
        return {s.axis for s in moved if isinstance(s, Coord) and s.axis is not None}

    def slot(self, node: Node, slots: int) -> Dim:
        if slots == 1:
            return 0
        count = ring_count(self.loops, self.counters)
        if count is None:
            inner = self.loops[-1]
            made = Counter(self.fresh(f"{inner.var.name}_count"))
            self.counters[inner.var] = made
            count = made.expr()
        return count % slots


def _strided(layout: ShardLayout) -> ShardLayout:
    """``layout`` with its strides written out."""
    if layout.stride is not None:
        return layout
    stride = refill(layout.shape, iter(compact_strides(layout.modes)))  # type: ignore[arg-type]
    assert isinstance(stride, tuple)
    return replace(layout, stride=stride)


def _quotient(extent: int, axes: Sequence[Axis]) -> int:
    for axis in axes:
        extent //= axis.extent
    return extent


def _part_layout(type: TensorType, gone: set[Axis]) -> ShardLayout | None:
    """The layout of what one owner holds: the modes that are not bound to its axes."""
    layout = type.layout
    assert layout is not None
    if layout.strides is None:
        return None
    shape: list[tuple[Dim, ...]] = []
    steps: list[tuple[Dim, ...]] = []
    for group in layout.groups(type.shape):
        kept = [m for m in group if layout.axes[m] not in gone] or []
        shape.append(tuple(layout.modes[m] for m in kept) or (1,))
        steps.append(tuple(layout.strides[m] for m in kept) or (0,))
    count = sum(len(s) for s in shape)
    return ShardLayout(tuple(shape), tuple(steps), (None,) * count, (), layout.swizzle)


def _leading(type: TensorType, extents: Sequence[int]) -> ShardLayout | None:
    """The layout of ``type``, one after another along new leading axes of ``extents``."""
    layout = type.layout
    if layout is None or layout.strides is None:
        return None
    groups = layout.groups(type.shape)
    modes = [_nest([layout.modes[m] for m in g]) for g in groups]
    steps = [_nest([layout.strides[m] for m in g]) for g in groups]
    size = 1 + sum(
        (int(m) - 1) * int(s)  # type: ignore[arg-type]
        for m, s in zip(layout.modes, layout.strides, strict=True)
    )
    lead: list[int] = []
    for extent in reversed(extents):
        lead.insert(0, size)
        size *= extent
    return ShardLayout((*extents, *modes), (*lead, *steps), axes=(None,) * (
        len(extents) + len(layout.modes)), swizzle=layout.swizzle)  # fmt: skip


def coordinate(axis: Axis) -> Expr:
    """A unit's coordinate on an axis."""
    return Coord(axis.name, 0, axis.extent - 1, axis=axis).expr()


def _nest(items: list[Dim]) -> Any:
    return items[0] if len(items) == 1 else tuple(items)
