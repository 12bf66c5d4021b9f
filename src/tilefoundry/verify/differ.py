"""Threads that store different values to the same elements of a memory that they share, or
ask one thread to move what depends on each of them.

A tile in registers that is replicated over threads may be stored by all of them, as they
hold the same. Where its value depends on their coordinates they do not: then the windows
that they store to must be apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from tilefoundry.ir.expr import Dim, Expr, Sym, bounds, substitute, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Buffer, For, Issue, Scalar, Stmt, View, When, With
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.roles import UNIT, WARP, WARPGROUP, Layout, coordinate

Axes = frozenset[Axis]
Loops = tuple[For, ...]
NONE: Axes = frozenset()
PAIRS = 256
"""Coordinates up to which windows are compared pair by pair; above, only equal ones count."""


def check(layout: Layout, findings: Findings) -> None:
    """Judge every store of a value that depends on the thread."""
    issues = [*_issues(layout.func.body, ())]
    taint: dict[Buffer, Axes] = {}
    grew = True
    while grew:
        grew = False
        for issue, loops in issues:
            axes = _source(issue, loops, taint) - frozenset(issue.attrs.get("over", ()))
            for view in issue.writes:
                if view.storage == "rmem" and not axes <= taint.get(view.buffer, NONE):
                    taint[view.buffer] = taint.get(view.buffer, NONE) | axes
                    grew = True
    for issue, loops in issues:
        axes = _source(issue, loops, taint)
        site = layout.sites[issue]
        size = _together(issue, len(site.threads))
        if size > 1:
            moved = _places(issue, loops) | (axes if effects(issue).elected else NONE)
            parted = _parted(moved, site.threads, size)
            if parted:
                findings.add(
                    "sync-participants", site.place, None,
                    f"{size} threads carry it out as one, but what it moves depends on {parted}",
                    "narrow the scope to the units of one coordinate, or take a window of all",
                )  # fmt: skip
                continue
        axes = frozenset(a for a in axes if len({coordinate(a, t) for t in site.threads}) > 1)
        names = ", ".join(sorted(a.name for a in axes))
        for view in issue.writes:
            if axes and view.storage != "rmem" and _meet(issue, view, axes, loops, site.threads):
                findings.add(
                    "device-overlap" if view.storage == "gmem" else "sync-race", site.place, None,
                    f"threads with different {names} store different values to the same "
                    f"elements of {view.buffer.name}",
                    "let each store to a part of its own",
                )  # fmt: skip


def _together(issue: Issue, threads: int) -> int:
    """Threads that carry an issue out as one: all that one thread issues for, a warpgroup, a
    warp, or each for itself."""
    effect = effects(issue)
    if effect.elected:
        return threads
    if effect.completion == "wgmma":
        return WARPGROUP
    return WARP if issue.instr == TILED or effect.exchanges else 1


def _places(issue: Issue, loops: Loops) -> Axes:
    """Thread axes that the windows of an issue depend on."""
    views = [v for v in (*issue.reads, *issue.writes) if isinstance(v, View)]
    return frozenset().union(*(_of((*v.index, v.slot), loops) for v in views))


def _parted(axes: Axes, threads: tuple[int, ...], size: int) -> str:
    """The axes on which threads of one group of ``size`` have different coordinates."""
    members = [threads] if size == len(threads) else [
        tuple(t for t in threads if t // size == g) for g in {t // size for t in threads}
    ]  # fmt: skip
    found = {a.name for a in axes for m in members if len({coordinate(a, t) for t in m}) > 1}
    return ", ".join(sorted(found))


def _issues(body: tuple[Stmt, ...], loops: Loops) -> Iterator[tuple[Issue, Loops]]:
    for stmt in body:
        if isinstance(stmt, Issue):
            yield stmt, loops
        elif isinstance(stmt, For):
            yield from _issues(stmt.body, (*loops, stmt))
        elif isinstance(stmt, (With, When)):
            yield from _issues(stmt.body, loops)


def _of(values: Iterable[Dim], loops: Loops) -> Axes:
    """Thread axes that index expressions depend on."""
    out: set[Axis] = set()
    for value in values:
        for s in symbols(value) if isinstance(value, Expr) else ():
            if isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT:
                out.add(s.axis)
            for n, loop in enumerate(loops):
                if loop.var is s:
                    out |= _of((loop.start, loop.stop, loop.step), loops[:n])
    return frozenset(out)


def _source(issue: Issue, loops: Loops, taint: dict[Buffer, Axes]) -> Axes:
    """Thread axes that what an issue reads depends on."""
    out = _of((v for v in issue.attrs.values() if isinstance(v, Expr)), loops)
    for read in issue.reads:
        if isinstance(read, Scalar):
            out |= _of((read.value,) if isinstance(read.value, Expr) else (), loops)
        else:
            out |= _of((*read.index, read.slot), loops) | taint.get(read.buffer, NONE)
    return out


def _meet(
    issue: Issue, view: View, axes: Axes, loops: Loops, threads: tuple[int, ...]
) -> bool:  # fmt: skip
    """Threads that hold the same elements of the source, but with other coordinates on
    ``axes``, store to windows that overlap."""
    held = [r for r in issue.reads if isinstance(r, View) and r.storage == "rmem"]
    split: tuple[Axis, ...] = ()
    if held and held[0].buffer.layout is not None:
        split = tuple(a for a in held[0].buffer.layout.split_axes if a.level == UNIT)
    groups: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    order = sorted(axes, key=lambda a: (a.stride, a.offset, a.name))
    for thread in threads:
        mine = tuple(coordinate(a, thread) for a in split)
        groups.setdefault(mine, {}).setdefault(tuple(coordinate(a, thread) for a in order), thread)
    known: dict[int, tuple[tuple[int, int], ...]] = {}
    seen: set[tuple[int, ...]] = set()
    for members in groups.values():
        chosen = tuple(members.values())
        key = tuple(x for at in members for x in at)
        if key in seen or len(chosen) < 2:
            continue
        seen.add(key)
        boxes = [known.setdefault(t, _box(view, loops, t)) for t in chosen]
        if len(set(boxes)) < len(boxes):
            return True
        if len(boxes) <= PAIRS and any(_overlap(a, b) for a, b in combinations(boxes, 2)):
            return True
    return False


def _box(view: View, loops: Loops, thread: int) -> tuple[tuple[int, int], ...]:
    """What one thread's window reaches along each axis of the buffer, and its slot, all other
    symbols at their least value."""
    env: dict[Sym, Dim] = {}

    def value(x: Dim) -> Dim:
        for s in symbols(x) if isinstance(x, Expr) else ():
            if s not in env and s not in view.vars:
                here = isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT
                env[s] = coordinate(s.axis, thread) if here else bounds(s.expr())[0]  # type: ignore[union-attr,arg-type]
        return substitute(x, env)

    for loop in loops:
        env[loop.var] = value(loop.start)
    reach = (bounds(value(place)) for place in (*view.index, view.slot))
    return tuple((int(lo), int(hi)) for lo, hi in reach)


def _overlap(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> bool:
    return all(lo <= top and low <= hi for (lo, hi), (low, top) in zip(a, b, strict=True))


__all__ = ["check"]
