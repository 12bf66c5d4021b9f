"""Blocks that meet, in a barrier or a collective, do so equally often, and run at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilefoundry.ir.expr import Dim, Expr, Sym, evaluate, symbols
from tilefoundry.ir.mesh import Coord, Mesh
from tilefoundry.tir.program import MEETINGS, For, Issue, Stmt, Sync, When, With
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.roles import UNIT, Layout, coordinate, inner_levels

LEVELS = ("cluster", "grid")
Frames = tuple[For | When, ...]
MOST = 1 << 20
"""Steps that are counted one by one; beyond, nothing is decided."""


class _TooLong(Exception):
    pass


def check(layout: Layout, findings: Findings) -> None:
    """Judge every meeting of blocks: that all can be there, and come equally often."""
    room = _resident(layout)
    for stmt, mesh, frames in _meetings(layout.func.body, Mesh(), ()):
        if _level(stmt) == "grid" and room is not None and len(layout.blocks) > room:
            findings.add(
                "sync-deadlock", layout.sites[stmt].place, None,
                f"{len(layout.blocks)} blocks meet, at most {room} run at once: the others never "
                "start",
                "let fewer blocks loop over the work",
            )  # fmt: skip
        if not any(_of_block(x) for frame in frames for x in _bounds(frame)):
            continue
        place = layout.sites[stmt].place
        counts: dict[tuple[int, ...], set[int]] = {}
        left = [MOST]
        try:
            for block in layout.blocks:
                if layout.inside(mesh, block):
                    group = _group(layout, stmt, mesh, block)
                    counts.setdefault(group, set()).add(_count(frames, block, {}, left))
        except _TooLong:
            findings.add("sync-undecided", place, None, "too many steps to count for each block",
                         "verify it with fewer trips")  # fmt: skip
            continue
        uneven = next((c for c in counts.values() if len(c) > 1), None)
        if uneven is not None:
            findings.add(
                "sync-deadlock", place, None,
                f"some blocks come here {min(uneven)} times, others {max(uneven)}: these wait",
                "let all blocks that meet take the same number of steps",
            )  # fmt: skip


def _resident(layout: Layout) -> int | None:
    """The most blocks that the device holds at once by its threads and shared memory; what
    registers allow is known when it is compiled."""
    func = layout.func
    target = func.target
    sizes = {UNIT: layout.threads, target.processor.level: 1}
    limits = [
        int(fact.value) // sizes[name]
        for name, fact in target.resident.items()
        if name in sizes and fact.value is not None
    ]
    shared = target.storages.get("smem")
    if shared is not None and shared.processor_capacity and shared.processor_capacity.value:
        kept = int(shared.reserved.value or 0) if shared.reserved is not None else 0
        each = func.shared_bytes + kept
        if each:
            limits.append(int(shared.processor_capacity.value) // each)
    count = target.processor.count.value
    return int(count) * max(1, min(limits)) if limits and count is not None else None


def _level(stmt: Stmt) -> str:
    if isinstance(stmt, Sync):
        return "cluster" if stmt.kind in MEETINGS else stmt.kind
    grid = isinstance(stmt, Issue) and stmt.attrs.get("scope") == "grid"
    return "grid" if grid else ""


def _group(layout: Layout, stmt: Stmt, mesh: Mesh, block: Mapping[str, int]) -> tuple[int, ...]:
    """Blocks of one group meet: of one cluster, along the axes of a reduction, or all; cores meet
    in one barrier."""
    if _level(stmt) == "cluster":
        return (block.get("cluster", 0),)
    if isinstance(stmt, Sync) or inner_levels(layout.func)[-1] != UNIT:
        return ()
    apart = [a for a in mesh.axes if a.level != UNIT and a not in stmt.attrs["over"]]  # type: ignore[union-attr]
    return tuple(coordinate(a, block.get(a.level, a.offset)) for a in apart)


def _meetings(
    body: tuple[Stmt, ...], mesh: Mesh, frames: Frames
) -> Iterator[tuple[Stmt, Mesh, Frames]]:
    for stmt in body:
        if isinstance(stmt, With):
            yield from _meetings(stmt.body, stmt.mesh, frames)
        elif isinstance(stmt, (For, When)):
            yield from _meetings(stmt.body, mesh, (*frames, stmt))
        elif _level(stmt) in LEVELS:
            yield stmt, mesh, frames


def _bounds(frame: For | When) -> tuple[Dim, ...]:
    return (frame.test,) if isinstance(frame, When) else (frame.start, frame.stop, frame.step)


def _of_block(x: Dim) -> bool:
    return isinstance(x, Expr) and any(
        isinstance(s, Coord) and s.axis is not None and s.axis.level != UNIT for s in symbols(x)
    )


def _count(
    frames: Frames, block: Mapping[str, int], env: Mapping[Sym, int], left: list[int]
) -> int:  # fmt: skip
    """How often a block comes through ``frames``; of its threads, the first."""
    if not frames:
        return 1
    frame, inner = frames[0], frames[1:]

    def value(x: Dim) -> int:
        known = dict(env)
        for s in symbols(x) if isinstance(x, Expr) else ():
            if isinstance(s, Coord) and s.axis is not None:
                known[s] = coordinate(s.axis, block.get(s.axis.level, s.axis.offset))
        return int(evaluate(x, known))

    if isinstance(frame, When):
        return _count(inner, block, env, left) if value(frame.test) > 0 else 0
    steps = range(value(frame.start), value(frame.stop), value(frame.step))
    used = {s for f in inner for x in _bounds(f) if isinstance(x, Expr) for s in symbols(x)}
    if not steps or frame.var not in used:
        return len(steps) * (_count(inner, block, env, left) if steps else 0)
    left[0] -= len(steps)
    if left[0] < 0:
        raise _TooLong
    return sum(_count(inner, block, {**env, frame.var: v}, left) for v in steps)


__all__ = ["check"]
