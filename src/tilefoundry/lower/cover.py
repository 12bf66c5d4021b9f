"""Whether a kernel writes every element of a result."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as cartesian
from math import prod
from typing import TypeAlias

from tilefoundry.ir.expr import Dim, IterVar, Sym, evaluate, symbols
from tilefoundry.ir.mesh import Coord, Mesh
from tilefoundry.tir.program import Buffer, For, Issue, PrimFunc, Stmt, View, When, With

LARGEST = 1 << 18
"""Windows, and places of their classes, that are enumerated at most."""
ELEMENTS = 1 << 12
"""Elements of a window that are enumerated one by one at most."""

Env = dict[Sym, int]
Along: TypeAlias = range | tuple[int, ...]
"""The indices along one axis that a window has."""
Window: TypeAlias = tuple[Along, ...]


def covers(func: PrimFunc, buffer: Buffer) -> bool:
    """Every element of ``buffer`` is written, proven by enumerating the written windows: along
    each axis, indices that the same windows have are a class; every class of the product must
    occur."""
    windows: dict[Window, None] = {}
    for count, found in enumerate(_writes(func.body, buffer, {}, Mesh())):
        windows[found] = None
        if count > LARGEST:
            return False
    classes = [_classes(w[n] for w in windows) for n in range(len(buffer.shape))]
    if any(len(of) != extent for of, extent in zip(classes, buffer.shape, strict=True)):
        return False
    cells = prod(len({*of.values()}) for of in classes)
    if cells > LARGEST:
        return False
    known: dict[tuple[int, Along], tuple[int, ...]] = {}
    seen: set[tuple[int, ...]] = set()
    steps = 0
    for w in windows:
        for n, along in enumerate(w):
            if (n, along) not in known:
                known[n, along] = tuple({classes[n][i] for i in along})
        mine = [known[n, along] for n, along in enumerate(w)]
        steps += prod(map(len, mine))
        if steps > LARGEST:
            return False
        seen.update(cartesian(*mine))
    return len(seen) == cells


def _classes(found: Iterator[Along]) -> dict[int, int]:
    """Of each index that occurs, the number of its class."""
    of: dict[int, int] = {}
    fresh = 0
    for along in dict.fromkeys(found):
        split: dict[int, int] = {}
        for i in along:
            old = of.get(i, -1)
            if old not in split:
                split[old], fresh = fresh, fresh + 1
            of[i] = split[old]
    return of


def _writes(body: tuple[Stmt, ...], buffer: Buffer, env: Env, mesh: Mesh) -> Iterator[Window]:
    for stmt in body:
        if isinstance(stmt, With):
            yield from _writes(stmt.body, buffer, env, stmt.mesh)
        elif isinstance(stmt, For) and _touches(stmt.body, buffer):
            for at in _environments((stmt.start, stmt.stop, stmt.step), env, mesh):
                bounds = (evaluate(x, at) for x in (stmt.start, stmt.stop, stmt.step))
                for value in range(*bounds):
                    yield from _writes(stmt.body, buffer, {**at, stmt.var: value}, mesh)
        elif isinstance(stmt, When) and _touches(stmt.body, buffer):
            for at in _environments((stmt.test,), env, mesh):
                if evaluate(stmt.test, at) > 0:
                    yield from _writes(stmt.body, buffer, at, mesh)
        elif isinstance(stmt, Issue):
            for view in stmt.writes:
                if view.buffer is buffer:
                    yield from _windows(view, env, mesh)


def _windows(view: View, env: Env, mesh: Mesh) -> Iterator[Window]:
    """What ``view`` has of its buffer, for all units."""
    starts = view.starts
    if starts is not None:
        zero: dict[Sym, int] = dict.fromkeys(view.vars, 0)
        for at in _environments(starts, env, mesh):
            first = (evaluate(s, {**at, **zero}) for s in starts)
            yield tuple(
                range(max(0, s), min(s + n, e))
                for s, n, e in zip(first, view.extents, view.buffer.shape, strict=True)
            )
        return
    own = [[v for v in view.vars if v in symbols(x)] for x in view.index]
    for at in _environments(view.index, env, mesh):
        if sum(map(len, own)) == len({v for mine in own for v in mine}):
            yield tuple(_values(view, n, mine, at) for n, mine in enumerate(own))
        elif prod(view.shape) <= ELEMENTS:
            for place in cartesian(*(range(e) for e in view.shape)):
                here = {**at, **dict(zip(view.vars, place, strict=True))}
                index = tuple(evaluate(x, here) for x in view.index)
                if all(0 <= i < e for i, e in zip(index, view.buffer.shape, strict=True)):
                    yield tuple((i,) for i in index)


def _values(view: View, axis: int, vars: list[IterVar], env: Env) -> Along:
    """The indices along an axis that depend on ``vars`` alone."""
    extents = dict(zip(view.vars, view.shape, strict=True))
    found = {
        evaluate(view.index[axis], {**env, **dict(zip(vars, place, strict=True))})
        for place in cartesian(*(range(extents[v]) for v in vars))
    }
    return tuple(sorted(i for i in found if 0 <= i < view.buffer.shape[axis]))


def _environments(values: tuple[Dim, ...], env: Env, mesh: Mesh) -> Iterator[Env]:
    """``env`` with every coordinate that ``values`` mention and it does not bind, for the units of
    ``mesh`` that have those that it binds."""
    coords = {s for v in values for s in symbols(v) if isinstance(s, Coord)}
    coords |= {s for s in env if isinstance(s, Coord)}
    levels: dict[str, list[Coord]] = {}
    for s in sorted(coords, key=lambda s: s.key):
        assert s.axis is not None
        levels.setdefault(s.axis.level, []).append(s)
    chosen = [
        [dict(zip(found, at, strict=True)) for at in _coordinates(level, found, mesh)
         if all(env.get(s, c) == c for s, c in zip(found, at, strict=True))]
        for level, found in levels.items()
    ]  # fmt: skip
    for several in cartesian(*chosen):
        out = dict(env)
        for one in several:
            out |= one
        yield out


def _coordinates(level: str, coords: list[Coord], mesh: Mesh) -> Iterator[tuple[int, ...]]:
    """The coordinates that units of ``mesh`` have together."""
    axes = [s.axis for s in coords if s.axis is not None]
    if not mesh.at(level):
        return cartesian(*(range(a.extent) for a in axes))
    units = mesh.units(level)
    return iter(dict.fromkeys(
        tuple((u - a.offset) // a.stride % a.extent for a in axes) for u in units
    ))  # fmt: skip


def _touches(body: tuple[Stmt, ...], buffer: Buffer) -> bool:
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            if _touches(stmt.body, buffer):
                return True
        elif isinstance(stmt, Issue) and any(w.buffer is buffer for w in stmt.writes):
            return True
    return False
