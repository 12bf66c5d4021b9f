"""Faults in where data lies and in what is loaded: windows of device memory, registers.

Each place is left out where the change is no fault of this kind: a window that no unit moves,
or that stays among its unit's own elements and leaves none unwritten; a load that nobody
executes or that another one makes up for.
"""

from collections import defaultdict
from dataclasses import replace
from math import prod

import numpy as np
from reading import Values

from tilefoundry.interpret.place import value
from tilefoundry.ir.expr import Expr, substitute, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import For, Issue, View, views, window
from tilefoundry.tir.rewrite import mapped


def window_faults(func, trace):
    """(kind, (function with the fault, where))."""
    yield from _windows(func, trace)
    yield from _loads(func, trace)


def _swap(func, old, *new):
    return replace(func, body=mapped(func.body, lambda s: new if s is old else (s,)))


# ---- windows


def _windows(func, trace):
    """A stored window one element before its place in all units but the first, or in the place
    of the first unit's."""
    loops = {}
    _find_loops(func.body, (), loops)
    known = {}
    for issue in (s for s in trace.executed if isinstance(s, Issue)):
        for n, view in enumerate(issue.writes):
            if view.storage != "gmem" or _by_thread(view, trace):
                continue
            for axis, coord in _moving(view, loops[issue], trace):
                where = f"{issue.instr} {view.buffer.name} axis {axis} by {coord.name}"
                index = [*view.index]
                index[axis] = index[axis] - coord.expr()
                moved = replace(view, index=tuple(index))
                made = replace(issue, writes=(*issue.writes[:n], moved, *issue.writes[n + 1 :]))
                if view.buffer not in known:
                    known[view.buffer] = _Touched(trace, view.buffer)
                if known[view.buffer].matters(view, moved):
                    yield "shift-window", (_swap(func, issue, made), where)
                if known[view.buffer].lost(view, coord):
                    yield "same-window", (_still(func, coord), where)


class _Touched:
    """Which elements of a buffer each block reads and writes, through which view."""

    def __init__(self, trace, buffer):
        self.trace = trace
        self.size = prod(buffer.shape)
        self.blocks = []
        for events in trace.blocks:
            by = defaultdict(lambda: np.zeros(self.size, bool))
            for e in events:
                stmt = e.stmt
                for n, view in enumerate(views(stmt)):
                    if view.buffer is buffer:
                        write = n >= len(views(stmt)) - len(stmt.writes)
                        _mark(by[view, write], view, e)
            self.blocks.append(by)

    def lost(self, view, coord):
        """Units with other coordinates than 0 touch what those at 0 do not."""
        first, others = (np.zeros(self.size, bool) for _ in range(2))
        for events, by in zip(self.trace.blocks, self.blocks, strict=True):
            at = next((e.env[coord] for e in events if view in views(e.stmt)), None)
            if at is not None:
                marks = by[view, True]
                first, others = (first, others | marks) if at else (first | marks, others)
        return bool((others & ~first).any())

    def matters(self, view, moved):
        """Through ``moved`` instead of ``view`` some block reaches outside, touches what
        another one does, or leaves an element that nobody writes."""
        covered, before = (np.zeros(self.size, bool) for _ in range(2))
        for number, events in enumerate(self.trace.blocks):
            mine = np.zeros(self.size, bool)
            here = self.blocks[number]
            for e in events:
                if view in views(e.stmt) and not _mark(mine, moved, e):
                    return True
            others = [m for n, by in enumerate(self.blocks) if n != number for m in by.values()]
            if any((mine & m).any() for m in others):
                return True
            covered |= mine
            for (other, write), marks in here.items():
                if write:
                    before |= marks
                    covered |= marks if other is not view else False
        return bool((before & ~covered).any())


def _mark(marks, view, event):
    """Marks the elements of a view as it is at an event; whether all lie inside."""
    shape = view.buffer.shape
    grid = np.indices(view.shape).reshape(len(view.shape), prod(view.shape))
    env = Values({**event.env, **dict(zip(view.vars, grid, strict=True))})
    at = np.zeros(grid.shape[1], np.int64)
    inside = np.ones(grid.shape[1], bool)
    for x, extent in zip(view.index, shape, strict=True):
        index = value(x, env)
        inside &= (index >= 0) & (index < extent)
        at = at * extent + index
    marks[at[inside]] = True
    return bool(inside.all()) or view.fill is not None


def _by_thread(view, trace):
    """The window differs among the units of one block."""
    found = set().union(*(symbols(x) for x in view.index if isinstance(x, Expr)))
    return any(isinstance(s, Coord) and s.axis.level in trace.inner for s in found)


def _find_loops(body, around, out):
    for stmt in body:
        out[stmt] = around
        inner = getattr(stmt, "body", ())
        _find_loops(inner, (*around, stmt) if isinstance(stmt, For) else around, out)


def _moving(view, loops, trace):
    """(axis of the buffer, coordinate of an outer level that moves the view along it)."""
    for axis, x in enumerate(view.index):
        for coord in sorted(_coords(x, loops), key=lambda c: c.key):
            if coord.axis.level not in trace.inner and coord.axis.extent > 1:
                yield axis, coord


def _coords(x, loops):
    """Coordinates that a value depends on, through the loops around it too."""
    if not isinstance(x, Expr):
        return set()
    out = set()
    for s in symbols(x):
        if isinstance(s, Coord):
            out.add(s)
        for n, loop in enumerate(loops):
            if loop.var is s:
                out |= _coords(loop.start, loops[:n])
    return out


def _still(func, coord):
    """Every unit does what the one at coordinate 0 does."""

    def change(stmt):
        env = {coord: 0}

        def view(v):
            return replace(v, index=tuple(substitute(x, env) for x in v.index))

        if isinstance(stmt, For):
            return (replace(stmt, start=substitute(stmt.start, env),
                            stop=substitute(stmt.stop, env)),)  # fmt: skip
        if isinstance(stmt, Issue):
            reads = tuple(view(r) if isinstance(r, View) else r for r in stmt.reads)
            return (replace(stmt, reads=reads, writes=tuple(map(view, stmt.writes))),)
        return (stmt,)

    return replace(func, body=mapped(func.body, change))


# ---- loads


def _loads(func, trace):
    """A load into registers left out, or without the last row of its tile."""
    issues = [s for s in trace.executed if isinstance(s, Issue)]
    writers, readers = {}, set()
    for issue in issues:
        for view in issue.writes:
            writers.setdefault(view.buffer, []).append(issue)
        readers |= {r.buffer for r in issue.reads if isinstance(r, View)}
    for issue in issues:
        if effects(issue).completion != "none" or len(issue.writes) != 1:
            continue
        (target,) = issue.writes
        buffer = target.buffer
        if buffer.storage in ("gmem", "smem") or buffer not in readers:
            continue
        if writers[buffer] != [issue] or any(v.buffer is buffer for v in views(issue)[:-1]):
            continue
        yield "drop-load", (_swap(func, issue), f"{issue.instr} {buffer.name}")
        if len(issue.reads) == 1 and buffer.offsets and target.shape[0] > 1:
            rows = (target.shape[0] - 1, *target.shape[1:])
            zero = (0,) * len(rows)
            made = replace(issue, reads=(window(issue.reads[0], zero, rows),),
                           writes=(window(target, zero, rows),))  # fmt: skip
            yield "short-load", (_swap(func, issue, made), f"{issue.instr} {buffer.name}")


__all__ = ["window_faults"]
