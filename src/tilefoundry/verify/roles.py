"""Who executes what: statements with their participants, and the partition into roles.

A role is a largest set of threads that take part in the same statements (and, where a slot,
a parity or a test depends on the thread, have the same coordinates there). A part of a
warpgroup that issues wgmma is a role of its own: the parts go together (``warpgroup.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product as cartesian
from math import prod
from typing import Any

from tilefoundry.ir.expr import Dim, Sym, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import (
    Advance,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Stmt,
    Sync,
    View,
    When,
    With,
    views,
    walk,
)
from tilefoundry.verify.finding import Place, what, who

UNIT = "thread"
WARP, WARPGROUP = 32, 128


@dataclass(frozen=True, eq=False)
class Role:
    """Threads, ascending, that execute the same statements; ``cta``: of which of the blocks
    that are followed together."""

    number: int
    threads: tuple[int, ...]
    cta: int = 0

    @cached_property
    def members(self) -> frozenset[int]:
        return frozenset(self.threads)

    @cached_property
    def warps(self) -> frozenset[int]:
        return frozenset(t // WARP for t in self.threads)

    @property
    def first(self) -> int:
        return self.threads[0]

    def fits(self, size: int) -> bool:
        """All of it lies in one aligned group of ``size`` threads."""
        return self.threads[0] // size == self.threads[-1] // size

    def __repr__(self) -> str:
        return f"threads {self.threads[0]}..{self.threads[-1]}"


@dataclass(frozen=True, eq=False)
class Site:
    """One statement with its participants in coordinate order."""

    stmt: Stmt
    mesh: Mesh
    threads: tuple[int, ...]
    number: int

    @cached_property
    def members(self) -> frozenset[int]:
        return frozenset(self.threads)

    @cached_property
    def place(self) -> Place:
        return Place(what(self.stmt), who(self.mesh), getattr(self.stmt, "span", None))

    @cached_property
    def whole_warps(self) -> bool:
        return all(
            self.members.issuperset(range(w * WARP, w * WARP + WARP))
            for w in {t // WARP for t in self.threads}
        )


@dataclass(frozen=True, eq=False)
class Layout:
    """The statements of a kernel, its roles, its blocks (CTAs) as level → unit."""

    func: PrimFunc
    sites: Mapping[Stmt, Site]
    roles: tuple[Role, ...]
    threads: int
    blocks: tuple[Mapping[str, int], ...]
    coords: frozenset[Coord] = field(default_factory=frozenset)
    divided: tuple[tuple[Role, ...], ...] = ()
    """The parts of each warpgroup that issues wgmma and is more than one role."""
    touched: dict[tuple[Issue, Role], tuple[Any, ...]] = field(default_factory=dict)
    """Touches of each issue by each role, once they are worked out."""
    _sets: dict[tuple[Axis, ...], tuple[tuple[str, frozenset[int]], ...]] = field(
        default_factory=dict
    )

    @cached_property
    def carried(self) -> frozenset[Buffer]:
        """Buffers in memory that are both written and read; not device memory where blocks
        are one thread, whose own order holds."""
        issues = [s for s in self.sites if isinstance(s, Issue)]
        read = {v.buffer for s in issues for v in s.reads if isinstance(v, View)}
        written = {v.buffer for s in issues for v in s.writes}
        own = ("rmem", "gmem") if self.threads == 1 else ("rmem",)
        return frozenset(b for b in read & written if b.storage not in own)

    def covers(self, mesh: Mesh) -> bool:
        """All blocks are among the units of a scope."""
        outer = tuple(a for a in mesh.axes if a.level not in inner_levels(self.func))
        return prod(a.extent for a in outer) == len(self.blocks) or all(
            self.inside(mesh, block) for block in self.blocks
        )

    def inside(self, mesh: Mesh, block: Mapping[str, int]) -> bool:
        """The block is among the units of a scope."""
        outer = tuple(a for a in mesh.axes if a.level not in inner_levels(self.func))
        if outer not in self._sets:
            levels = dict.fromkeys(a.level for a in outer)
            self._sets[outer] = tuple((x, frozenset(mesh.units(x))) for x in levels)
        return all(block.get(level, 0) in units for level, units in self._sets[outer])


def coordinate(axis: Axis, unit: int) -> int:
    """The coordinate of a unit on one axis of its level."""
    return (unit - axis.offset) // axis.stride % axis.extent if axis.extent > 1 else 0


def control(stmt: Stmt) -> tuple[Dim, ...]:
    """The expressions of a statement that decide what happens, not where data lies."""
    if isinstance(stmt, Issue):
        own = stmt.attrs.get("slot", 0) if "barrier" in stmt.attrs else 0
        return (own, *(v.slot for v in views(stmt)))
    if isinstance(stmt, Sync):
        return stmt.slot, stmt.parity
    if isinstance(stmt, For):
        return stmt.start, stmt.stop, stmt.step
    if isinstance(stmt, When):
        return (stmt.test,)
    return (stmt.by,) if isinstance(stmt, Advance) else ()


def expressions(stmt: Stmt) -> Iterator[Dim]:
    yield from control(stmt)
    for view in views(stmt):
        yield from view.index


def distinct(body: tuple[Stmt, ...], seen: set[Stmt]) -> tuple[Stmt, ...]:
    """The statements, a second one of those that stand in two places."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            inner = distinct(stmt.body, seen)
            again = stmt in seen or any(a is not b for a, b in zip(inner, stmt.body, strict=True))
            out.append(replace(stmt, body=inner) if again else stmt)
        else:
            out.append(replace(stmt) if stmt in seen else stmt)
        seen.add(out[-1])
    return tuple(out)


def layout(func: PrimFunc) -> Layout:
    """Sites, roles and blocks of a kernel."""
    func = replace(func, body=distinct(func.body, set()))
    sizes = {t.level: t.size for t in func.topologies}
    threads = sizes.get(UNIT, 1)
    everyone = tuple(range(threads))
    units: dict[tuple[Axis, ...], tuple[int, ...]] = {}
    sites: dict[Stmt, Site] = {}
    coords: set[Coord] = set()
    splits: set[Coord] = set()
    for stmt, mesh in walk(func.body):
        axes = mesh.at(UNIT)
        if axes not in units:
            units[axes] = tuple(mesh.units(UNIT)) if axes else everyone
        sites[stmt] = Site(stmt, mesh, units[axes], len(sites))
        for x in expressions(stmt):
            found = {s for s in _symbols(x) if isinstance(s, Coord)}
            coords |= found
        for x in control(stmt):
            splits |= {
                s for s in _symbols(x)
                if isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT
            }  # fmt: skip
    sets = [frozenset(u) for u in dict.fromkeys(units.values())]
    axes = sorted((s.axis for s in splits if s.axis is not None), key=lambda a: a.units)
    groups: dict[tuple[object, ...], list[int]] = {}
    for thread in everyone:
        key = (*(thread in s for s in sets), *(coordinate(a, thread) for a in axes))
        groups.setdefault(key, []).append(thread)
    together = _warpgroups(sites)
    parts = [p for g in groups.values() for p in _apart(g, together)]
    roles = tuple(Role(n, tuple(g)) for n, g in enumerate(sorted(parts, key=lambda g: g[0])))
    divided = tuple(
        mine for w in together
        if len(mine := tuple(r for r in roles if r.first // WARPGROUP == w)) > 1
    )  # fmt: skip
    outer = [(level, size) for level, size in sizes.items() if level not in inner_levels(func)]
    blocks = tuple(
        dict(zip((level for level, _ in outer), at, strict=True))
        for at in cartesian(*(range(size) for _, size in outer))
    )
    return Layout(func, sites, roles, threads, blocks, frozenset(coords), divided)


def _warpgroups(sites: Mapping[Stmt, Site]) -> tuple[int, ...]:
    """The warpgroups that issue wgmma together."""
    issuing = {
        s.members for stmt, s in sites.items()
        if isinstance(stmt, Issue) and effects(stmt).completion == "wgmma"
    }  # fmt: skip
    return tuple(sorted({t // WARPGROUP for members in issuing for t in members}))


def _apart(threads: list[int], together: tuple[int, ...]) -> list[list[int]]:
    """The threads of a role as they are, or by warpgroups if they are a part of one."""
    groups: dict[int, list[int]] = {}
    for t in threads:
        groups.setdefault(t // WARPGROUP, []).append(t)
    part = any(len(groups.get(w, ())) % WARPGROUP for w in together)
    return list(groups.values()) if part else [threads]


def inner_levels(func: PrimFunc) -> tuple[str, ...]:
    """Levels inside a block: threads, or lanes that go in step as one thread."""
    return (UNIT, func.target.levels[-1]) if func.target is not None else (UNIT,)


def _symbols(x: Dim) -> frozenset[Sym]:
    return frozenset() if isinstance(x, int) else symbols(x)


def window_axes(view: View) -> tuple[tuple[Dim, int | None], ...] | None:
    """Per buffer axis (start, number of the view's axis that runs along it or None), if the
    view takes each axis in unit steps; else None."""
    from tilefoundry.ir.expr import substitute

    zero: Mapping[Sym, Dim] = dict.fromkeys(view.vars, 0)
    number = {v: n for n, v in enumerate(view.vars)}
    out: list[tuple[Dim, int | None]] = []
    for x in view.index:
        used = [v for v in _symbols(x) if v in number]
        if not used:
            out.append((x, None))
            continue
        start = substitute(x, zero)
        if len(used) > 1 or x - start != used[0].expr():
            return None
        out.append((start, number[used[0]]))  # type: ignore[index]
    return tuple(out)


__all__ = [
    "UNIT",
    "WARP",
    "WARPGROUP",
    "Layout",
    "Role",
    "Site",
    "control",
    "coordinate",
    "expressions",
    "inner_levels",
    "layout",
    "window_axes",
]
