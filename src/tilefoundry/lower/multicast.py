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
from tilefoundry.lower.storage import coordinate
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.contract.unit import CLUSTER
from tilefoundry.tir.plans import plan_of
from tilefoundry.tir.program import Issue, View, window


def shared_axes(
    mesh: Mesh, level: str | None, varies: frozenset[Axis], loops: Sequence[Loop]
) -> tuple[Axis, ...]:
    """Axes of ``level`` inside a cluster along which all units do the same equally often: on
    which neither a value that differs on ``varies`` depends nor a loop around it."""
    if level is None or CLUSTER not in mesh.levels or level == CLUSTER:
        return ()
    moved = varies.union(*(_axes((x.start, x.stop, x.step), loops) for x in loops))
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


def divided(issue: Issue, mesh: Mesh, over: Sequence[Axis]) -> Issue | None:
    """The part of a load that one of the CTAs along ``over`` issues for all of them, cut so
    that the fewest boxes are needed; None where the contract has none."""
    contract = contract_at(issue.instr)
    (source, *_), target = issue.reads, issue.writes[0]
    able = isinstance(contract, CopyInstr) and contract.multicast
    if not over or not able or not isinstance(source, View) or source.shape != target.shape:
        return None
    count = prod(a.extent for a in over)
    best: tuple[int, Issue] | None = None
    for axis, extent in enumerate(target.shape):
        if extent % count:
            continue
        number: Dim = 0
        for a in over:
            number = number * a.extent + coordinate(a)
        starts = tuple(number * (extent // count) if n == axis else 0
                       for n in range(len(target.shape)))  # fmt: skip
        shape = tuple(e // count if n == axis else e for n, e in enumerate(target.shape))
        part = Issue(issue.instr, (window(source, starts, shape),),
                     (window(target, starts, shape),), {**issue.attrs, "multicast": tuple(over)},
                     issue.span, issue.source)  # fmt: skip
        plan = plan_of(part, mesh)
        if plan is None or isinstance(plan, Unmet):
            continue
        boxes = prod(plan.repeat)
        if best is None or boxes < best[0]:
            best = boxes, part
    return best[1] if best else None
