"""Tiles that several CTAs of a cluster load alike, loaded once for all of them.

A load whose window is the same along axes of the cluster's CTAs is cut along one axis of the
tile: each CTA loads its part and delivers it to all. Nobody decides this but the mesh, and the
instruction, which must be one that can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tilefoundry.ir.expr import Dim, Sym, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Loop
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import CopyInstr, Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Window
from tilefoundry.targets.contract.unit import CLUSTER


def shared_axes(
    mesh: Mesh, level: str | None, varies: frozenset[Axis], place: TensorType,
    loops: Sequence[Loop],
) -> tuple[Axis, ...]:  # fmt: skip
    """Axes of ``level`` inside a cluster along which all units do the same equally often: on
    which neither a value that differs on ``varies`` depends, nor what each has of ``place``, nor
    a loop around it."""
    if level is None or CLUSTER not in mesh.levels or level == CLUSTER:
        return ()
    split = {d.axis for d in place.digits}
    moved = varies.union(split, *(_axes((x.start, x.stop, x.step), loops) for x in loops))
    return tuple(a for a in mesh.at(level) if a.extent > 1 and a not in moved)


def _axes(values: Iterable[Dim], loops: Sequence[Loop]) -> frozenset[Axis]:
    """Axes that index expressions depend on, through loops around them too."""
    out: set[Axis] = set()
    found: set[Sym] = {s for x in values for s in symbols(x)}
    for s in found:
        if isinstance(s, Coord) and s.axis is not None:
            out.add(s.axis)
        for n, loop in enumerate(loops):
            if loop.var is s:
                out |= _axes((loop.start, loop.stop, loop.step), loops[:n])
    return frozenset(out)


def number_of(over: Sequence[Axis]) -> Dim:
    """The number of a unit among those along ``over``."""
    number: Dim = 0
    for a in over:
        number = number * a.extent + Coord(a.name, 0, a.extent - 1, axis=a).expr()
    return number


def divided(
    contract: object, level: str, mesh: Mesh, source: Side, target: Side, over: Sequence[Axis]
) -> int | None:
    """The axis of a tile that a load of it is cut along, so that each unit along ``over`` loads
    a part for all: the one that needs the fewest boxes; None where the contract has none."""
    able = isinstance(contract, CopyInstr) and contract.multicast
    if not over or not able or source.type.shape != target.type.shape:
        return None
    assert isinstance(contract, CopyInstr)
    count = prod(a.extent for a in over)
    best: tuple[int, int] | None = None
    for axis, extent in enumerate(target.type.shape):
        if not isinstance(extent, int) or extent % count:
            continue
        start = number_of(over) * (extent // count)
        parts = [_part(side, axis, start, extent // count) for side in (source, target)]
        plan = contract.judge(level, mesh, *parts)
        if not isinstance(plan, Unmet) and (best is None or prod(plan.repeat) < best[0]):
            best = prod(plan.repeat), axis
    return best[1] if best else None


def _part(side: Side, axis: int, start: Dim, size: int) -> Side:
    """``size`` elements of a tile along ``axis``, from ``start`` on."""
    window = side.window or Window.all_of(side.type)
    starts = tuple(
        s + start * window.step(n) if window.axes[n] == axis else s
        for n, s in enumerate(window.starts)
    )
    shape = tuple(size if n == axis else e for n, e in enumerate(side.type.shape))
    type = TensorType(shape, side.type.dtype, None, side.type.storage)
    return Side(type, Window(window.whole, window.axes, starts, window.steps))


__all__ = ["divided", "number_of", "shared_axes"]
