"""Compute cost: operations by class and element type, logical, executed and per unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product as cartesian
from math import prod

from tilefoundry.analyze.figure import (
    EXACT,
    LOWER,
    UPPER,
    ZERO,
    Figure,
    Undecidable,
    joined,
    undecided,
)
from tilefoundry.analyze.flow import Site
from tilefoundry.analyze.program import Program, types_of
from tilefoundry.analyze.trips import LIMIT, Trips
from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, maximum
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.node import Node, Structural
from tilefoundry.ops.base import Op, call_of

Kind = tuple[str, str]
"""(class, dtype): ``("matrix", "bf16")``."""


@dataclass(frozen=True)
class Cost:
    """One kind of operation: of the program's meaning, over all units, of one unit."""

    logical: Figure = ZERO
    executed: Figure = ZERO
    per_unit: Figure = ZERO


@dataclass(frozen=True)
class Load:
    """``share`` per execution of each unit of ``holders``; ``trips`` executions.

    ``precision`` of the product, where only a bound is known."""

    mesh: Mesh
    holders: tuple[Axis, ...]
    trips: Trips
    share: Dim
    precision: str = EXACT


@dataclass
class WorkTable:
    """Costs by node and kind, and of the whole function by kind."""

    level: str
    by_node: dict[Node, dict[Kind, Cost]] = field(default_factory=dict)
    total: dict[Kind, Cost] = field(default_factory=dict)


def exact_part(whole: Dim, over: int) -> Dim:
    """``whole / over``, rounded up where a part is not whole."""
    return whole if over == 1 else -((-whole) // over)


def node_work(program: Program, node: Node) -> Mapping[Kind, Dim]:
    """Operations of one execution of ``node`` on the whole value, by kind."""
    if isinstance(node.op, Structural) or not isinstance(node.op, Op):
        return {}
    shapes = tuple(t.shape for t in types_of(node))
    found = node.op.work(call_of(node, program.context), shapes).counts
    return {kind: n for kind, x in found.items() if (n := program.bind(x)) != 0}


def work_table(program: Program, level: str) -> WorkTable:
    """The compute cost of every statement and of the function; units are of ``level``."""
    out = WorkTable(level)
    loads: dict[Kind, list[Load]] = {}
    unknown: dict[Kind, Figure] = {}
    for site in program.flow.sites:
        counts = node_work(program, site.node)
        if not counts:
            continue
        row = out.by_node.setdefault(site.node, {})
        for kind, whole in counts.items():
            try:
                mine, logical, executed = _cost(program, site, whole)
            except Undecidable as why:
                row[kind] = Cost(*(3 * [undecided(why.reason)]))
                unknown.setdefault(kind, undecided(why.reason))
                continue
            loads.setdefault(kind, []).extend(mine)
            row[kind] = Cost(logical, executed, busiest(program, mine, level))
    for kind in dict.fromkeys((*loads, *unknown)):
        if kind in unknown:
            out.total[kind] = Cost(*(3 * [unknown[kind]]))
            continue
        rows = [r[kind] for r in out.by_node.values() if kind in r]
        logical = sum((r.logical for r in rows), ZERO)
        executed = sum((r.executed for r in rows), ZERO)
        out.total[kind] = Cost(logical, executed, busiest(program, loads[kind], level))
    return out


def _cost(program: Program, site: Site, whole: Dim) -> tuple[list[Load], Figure, Figure]:
    holders = program.holders(site)
    over = prod(a.extent for a in program.splits(site.node))
    times = program.summed(site.nest, exact_part(whole, over))
    loads = [Load(site.mesh, holders, n, share, times.precision) for share, n in times.parts]
    logical = Figure(times.total(program.distinct(site)), times.precision)
    return loads, logical, Figure(times.total(holders), times.precision)


def busiest(program: Program, loads: Iterable[Load], level: str) -> Figure:
    """The most that one unit of ``level`` does, all of ``loads`` together.

    Where several units share one statement, an even division is a lower bound on the
    busiest. Statements outside every mesh of the level are nobody's.
    """
    deep = program.levels.index(level)
    placed = [x for x in loads if x.mesh.at(level) or _outer(program, x.mesh, deep)]
    if not placed:
        return _unplaced(loads)
    shared = [LOWER if _shared(program, x, deep) else EXACT for x in placed]
    precision = joined((*shared, *(x.precision for x in placed)))
    uneven = [lv for lv in program.levels[: deep + 1] if _uneven(lv, placed)]
    if not uneven:
        value: Dim = 0
        for x in placed:
            value = value + _per_unit(program, x, deep, {})
        return Figure(value, precision)
    return Figure(_most(program, placed, deep, uneven), precision)


def _outer(program: Program, mesh: Mesh, deep: int) -> bool:
    return any(program.levels.index(a.level) <= deep for a in mesh.axes)


def _unplaced(loads: Iterable[Load]) -> Figure:
    total: Dim = 0
    for x in loads:
        total = total + x.share * x.trips.total(x.holders)
    return Figure(total, UPPER if total != 0 else EXACT)


def _shared(program: Program, load: Load, deep: int) -> bool:
    mine = [a for a in load.mesh.axes if program.levels.index(a.level) <= deep]
    return any(a.extent > 1 and a not in load.holders for a in mine)


def _uneven(level: str, loads: list[Load]) -> bool:
    """Units of ``level`` differ in what they do."""
    if any(a.level == level for x in loads for a in x.trips.axes):
        return True
    meshes = {x.mesh.at(level): x.mesh for x in loads}
    return len({frozenset(m.units(level)) if at else None for at, m in meshes.items()}) > 1


def _per_unit(program: Program, load: Load, deep: int, place: Mapping[Axis, int]) -> Dim:
    """What one unit does: the units inside of it together, cooperating ones evenly."""
    inner = [a for a in load.holders if program.levels.index(a.level) > deep]
    mine = [a for a in load.mesh.axes if program.levels.index(a.level) <= deep]
    crew = prod(a.extent for a in mine if a not in load.holders)
    free = [a for a in load.trips.axes if a not in place]
    if not free:
        times = load.trips.at(place) * prod(a.extent for a in inner)
    else:
        times = 0
        for crd in cartesian(*(range(a.extent) for a in free)):
            times = times + load.trips.at({**place, **dict(zip(free, crd, strict=True))})
        times = times * prod(a.extent for a in inner if a not in free)
    return exact_part(load.share * times, crew)


def _most(program: Program, loads: list[Load], deep: int, uneven: list[str]) -> Dim:
    amounts: dict[tuple[int, ...], Dim] = {}
    every: Dim = 0
    points = 0
    for load in _grouped(loads):
        axes = [a for a in load.mesh.axes if a.level in uneven]
        if not axes:
            every = every + _per_unit(program, load, deep, {})
            continue
        points += prod(a.extent for a in axes)
        if points > LIMIT:
            refuse(
                "analysis-too-large", what="finding the busiest unit", points=points, limit=LIMIT
            )
        for crd in cartesian(*(range(a.extent) for a in axes)):
            place = dict(zip(axes, crd, strict=True))
            ids = [load.mesh.offset(lv) if load.mesh.at(lv) else -1 for lv in uneven]
            for a, c in place.items():
                ids[uneven.index(a.level)] += c * a.stride
            key = tuple(ids)
            amounts[key] = amounts.get(key, 0) + _per_unit(program, load, deep, place)
    distinct = dict.fromkeys(_spread(amounts).values())
    return every + (maximum(*distinct) if distinct else 0)


def _grouped(loads: list[Load]) -> list[Load]:
    """Loads of the same units and trips as one."""
    out: dict[tuple[object, ...], Load] = {}
    for x in loads:
        key = (x.mesh.axes, x.holders, id(x.trips))
        old = out.get(key)
        share = x.share if old is None else old.share + x.share
        out[key] = Load(x.mesh, x.holders, x.trips, share)
    return list(out.values())


def _spread(amounts: dict[tuple[int, ...], Dim]) -> dict[tuple[int, ...], Dim]:
    """Work of a mesh without some uneven level (-1) counts for each of that level's units."""
    whole = {k: v for k, v in amounts.items() if -1 not in k}
    for key, extra in amounts.items():
        if -1 not in key:
            continue
        hit = [k for k in whole if all(a in (-1, b) for a, b in zip(key, k, strict=True))]
        for k in hit:
            whole[k] = whole[k] + extra
        if not hit:
            whole[key] = extra
    return whole
