"""CTAs that reach each other's shared memory: which of them run together, and who reaches whom.

PTX ISA, "State Spaces: shared::cluster", "barrier.cluster", "mapa": a CTA's shared memory may
be touched by others of its cluster while the CTA runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.ir.mesh import Axis
from tilefoundry.tir.program import MEETINGS, PrimFunc, Sync, coupled, reach, walk
from tilefoundry.verify.roles import Layout, coordinate, inner_levels

CLUSTER = "cluster"
Block = Mapping[str, int]


@dataclass(frozen=True)
class Remote:
    """What a role did in another CTA's shared memory: known there once ``dim`` is ``time``."""

    dim: int
    time: int


def together(layout: Layout) -> list[tuple[Block, ...]]:
    """The blocks in groups that are to be followed together: the CTAs of each cluster where
    they have to do with one another, else each alone."""
    if not coupled(layout.func):
        return [(block,) for block in layout.blocks]
    target = layout.func.target
    levels: Sequence[str] = target.levels if target is not None else ()
    outer = levels[: levels.index(CLUSTER) + 1] if CLUSTER in levels else levels
    groups: dict[tuple[int, ...], list[Block]] = {}
    for block in layout.blocks:
        groups.setdefault(tuple(block.get(x, 0) for x in outer), []).append(block)
    return [tuple(g) for g in groups.values()]


def targets(blocks: Sequence[Block], own: int, over: Sequence[Axis]) -> list[int] | None:
    """The blocks along ``over`` from block number ``own``, itself included, by number; None
    if one of them is not there."""
    where = [dict(blocks[own])]
    for axis in over:
        moved: list[dict[str, int]] = []
        for at in where:
            unit = at.get(axis.level, 0)
            first = unit - coordinate(axis, unit) * axis.stride
            moved += [{**at, axis.level: first + n * axis.stride} for n in range(axis.extent)]
        where = moved
    numbers = {tuple(sorted(b.items())): n for n, b in enumerate(blocks)}
    found = [numbers.get(tuple(sorted(at.items()))) for at in where]
    return None if None in found else [n for n in found if n is not None]


def misplaced(func: PrimFunc) -> list[tuple[object, str]]:
    """Statements that reach along axes which are not those of a cluster's CTAs."""
    sizes = {t.level for t in func.topologies}
    inside = {x for x in sizes if x not in inner_levels(func) and x not in (CLUSTER, "gpu")}
    out: list[tuple[object, str]] = []
    for stmt, _ in walk(func.body):
        over = reach(stmt)
        wrong = [a.name for a in over if a.level not in inside or CLUSTER not in sizes]
        if wrong:
            out.append((stmt, ", ".join(wrong)))
        elif isinstance(stmt, Sync) and stmt.kind in MEETINGS and CLUSTER not in sizes:
            out.append((stmt, "no cluster"))
    return out


__all__ = ["CLUSTER", "Block", "Remote", "misplaced", "targets", "together"]
