"""Whether a kernel writes every element of a result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as cartesian

from tilefoundry.ir.expr import Dim, Sym, evaluate, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.tir.program import Buffer, For, Issue, PrimFunc, Stmt, View, When, With

LARGEST = 1 << 18
"""Windows that are enumerated at most."""

Env = dict[Sym, int]


def covers(func: PrimFunc, buffer: Buffer) -> bool:
    """Every element of ``buffer`` is written, proven by enumerating the written windows:
    they are cells of one grid, and all of its cells occur."""
    windows: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for count, (starts, shape) in enumerate(_writes(func.body, buffer, {})):
        windows.setdefault(shape, set()).add(starts)
        if count > LARGEST:
            return False
    for shape, starts in windows.items():
        cells = 1
        for extent, size in zip(buffer.shape, shape, strict=True):
            if extent % size:
                break
            cells *= extent // size
        else:
            aligned = sum(
                all(s % n == 0 for s, n in zip(start, shape, strict=True)) for start in starts
            )
            if aligned == cells:
                return True
    return False


def _writes(
    body: tuple[Stmt, ...], buffer: Buffer, env: Env
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for stmt in body:
        if isinstance(stmt, With):  # what a When guards is not counted
            yield from _writes(stmt.body, buffer, env)
        elif isinstance(stmt, For) and _touches(stmt.body, buffer):
            for at in _environments((stmt.start, stmt.stop, stmt.step), env):
                bounds = (evaluate(x, at) for x in (stmt.start, stmt.stop, stmt.step))
                for value in range(*bounds):
                    yield from _writes(stmt.body, buffer, {**at, stmt.var: value})
        elif isinstance(stmt, Issue):
            for view in stmt.writes:
                if view.buffer is buffer:
                    yield from _window(view, env)


def _window(view: View, env: Env) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    starts = view.starts
    if starts is None:
        return
    zero: dict[Sym, int] = dict.fromkeys(view.vars, 0)
    for at in _environments(starts, env):
        yield tuple(evaluate(s, {**at, **zero}) for s in starts), view.extents


def _environments(values: tuple[Dim, ...], env: Env) -> Iterator[Env]:
    """``env`` with every coordinate that ``values`` mention and it does not bind."""
    open_coords = {s for v in values for s in symbols(v) if isinstance(s, Coord) and s not in env}
    coords = sorted(open_coords, key=lambda s: s.key)
    axes: list[Axis] = [s.axis for s in coords if s.axis is not None]
    for chosen in cartesian(*(range(a.extent) for a in axes)):
        yield {**env, **dict(zip(coords, chosen, strict=True))}


def _touches(body: tuple[Stmt, ...], buffer: Buffer) -> bool:
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            if _touches(stmt.body, buffer):
                return True
        elif isinstance(stmt, Issue) and any(w.buffer is buffer for w in stmt.writes):
            return True
    return False
