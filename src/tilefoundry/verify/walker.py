"""The executions of a statement over all blocks, as far as they differ to some expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as cartesian
from typing import TypeAlias

from tilefoundry.ir.expr import Dim, Expr, Sym, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.tir.program import For, Issue, Stmt, When, With
from tilefoundry.verify.numbers import Compiler, Env, Fn
from tilefoundry.verify.roles import UNIT, Layout, Site, coordinate, inner_levels
from tilefoundry.verify.rounds import Epoch, Rounds, plus

Owner: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Placed:
    """An issue with the scopes, loops and tests around it, outermost first."""

    site: Site
    around: tuple[Stmt, ...]
    epoch: Epoch
    """Meetings before it; each round of a loop around it adds those inside the loop."""


def placed_in(layout: Layout) -> Iterator[Placed]:
    """The issues of a kernel, in program order."""
    rounds = Rounds(layout)

    def walk(
        body: tuple[Stmt, ...], around: tuple[Stmt, ...], before: Epoch, counted: bool
    ) -> Iterator[Placed]:
        for stmt in body:
            if isinstance(stmt, (With, For, When)):
                inside = counted and rounds.counted(stmt)
                yield from walk(stmt.body, (*around, stmt), before, inside)
            elif isinstance(stmt, Issue):
                yield Placed(layout.sites[stmt], around, before)
            if counted:
                before = plus(before, rounds.of((stmt,)))

    yield from walk(layout.func.body, (), rounds.none, True)


class Walker:
    """Runs the loops around a statement, as far as they matter to some expressions."""

    def __init__(self, layout: Layout, compiler: Compiler) -> None:
        self.layout, self.compiler = layout, compiler
        self.rounds = Rounds(layout)
        self.coords = sorted(layout.coords, key=lambda c: c.key)
        for c in self.coords:
            compiler.at(c)
        self._blocks: dict[tuple[Axis, ...], list[tuple[int, Mapping[str, int]]]] = {}

    def blocks(self, around: tuple[Stmt, ...]) -> list[tuple[int, Mapping[str, int]]]:
        """The blocks that take part in a statement, numbered."""
        mesh = next((s.mesh for s in reversed(around) if isinstance(s, With)), None)
        if mesh is None:
            return list(enumerate(self.layout.blocks))
        axes = tuple(a for a in mesh.axes if a.level != UNIT)
        if axes not in self._blocks:
            everyone = list(enumerate(self.layout.blocks))
            if not self.layout.covers(mesh):
                everyone = [(n, b) for n, b in everyone if self.layout.inside(mesh, b)]
            self._blocks[axes] = everyone
        return self._blocks[axes]

    def run(self, item: Placed, needed: tuple[Dim, ...]) -> Iterator[tuple[Owner, Env, Epoch]]:
        """(owner, environment, epoch) of every execution that may give new values."""
        frames, wanted = self._frames(item, needed)
        env: Env = [0] * (len(self.compiler.place) + 1)
        threads = self._threads(item.site, wanted)
        lanes = self._lanes(item.site.mesh, wanted)
        for number, block in self.blocks(item.around):
            for c in self.coords:
                axis = c.axis
                if axis is not None and axis.level != UNIT:
                    env[self.compiler.at(c)] = coordinate(axis, block.get(axis.level, 0))
            for (key, values), lane in cartesian(threads, lanes):
                for place, value in (*values, *lane):
                    env[place] = value
                for epoch in _loops(frames, 0, env, item.epoch):
                    yield (number, key), env, epoch

    def _threads(self, site: Site, wanted: set[Sym]):
        used = sorted(
            (s for s in wanted
             if isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT),
            key=lambda s: s.key,
        )  # fmt: skip
        out: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for thread in site.threads if used else site.threads[:1]:
            key = tuple(coordinate(s.axis, thread) for s in used)  # type: ignore[arg-type]
            out[key] = list(zip((self.compiler.at(s) for s in used), key, strict=True))
        return list(out.items())

    def _lanes(self, mesh: Mesh, wanted: set[Sym]) -> list[tuple[tuple[int, int], ...]]:
        """Coordinates of the lanes of a scope that go in step as one thread, each once."""
        level = inner_levels(self.layout.func)[-1]
        used = [c for c in self.coords if c in wanted and c.axis and c.axis.level == level != UNIT]
        if not used:
            return [()]
        sizes = {t.level: t.size for t in self.layout.func.topologies}
        units = mesh.units(level) if mesh.at(level) else range(sizes.get(level, 1))
        at = [self.compiler.at(c) for c in used]
        each = (tuple(coordinate(c.axis, u) for c in used) for u in units)  # type: ignore[arg-type]
        return [tuple(zip(at, values, strict=True)) for values in dict.fromkeys(each)]

    def _frames(self, item: Placed, needed: tuple[Dim, ...]) -> tuple[list[Frame], set[Sym]]:
        """The loops and tests around that matter, and all symbols that do."""
        wanted = {s for x in needed for s in symbols_of(x)}
        chosen: list[Frame] = []
        uncounted = [n for n, s in enumerate(item.around) if not self.rounds.counted(s)]  # type: ignore[arg-type]
        inner = min(uncounted, default=len(item.around))
        for n, stmt in reversed([*enumerate(item.around)]):
            if isinstance(stmt, When):
                wanted |= symbols_of(stmt.test)
                chosen.append(Frame(None, (self.compiler.fn(stmt.test),), True, self.rounds.none))
            elif isinstance(stmt, For):
                wanted |= {s for x in (stmt.start, stmt.stop, stmt.step) for s in symbols_of(x)}
                fns = self.compiler.fns((stmt.start, stmt.stop, stmt.step))
                each = self.rounds.of(stmt.body) if n < inner else self.rounds.none
                moves = stmt.var in wanted or any(each)
                chosen.append(Frame(self.compiler.at(stmt.var), fns, moves, each))
        return chosen[::-1], wanted


@dataclass(frozen=True)
class Frame:
    """A loop (``place`` of its variable; start, stop, step) or a test (``place`` None)."""

    place: int | None
    fns: tuple[Fn, ...]
    moves: bool
    each: Epoch
    """Meetings of one round."""


def _loops(frames: list[Frame], at: int, env: Env, epoch: Epoch) -> Iterator[Epoch]:
    if at == len(frames):
        yield epoch
        return
    frame = frames[at]
    if frame.place is None:
        if frame.fns[0](env) > 0:
            yield from _loops(frames, at + 1, env, epoch)
        return
    start, stop, step = (f(env) for f in frame.fns)
    values = range(start, stop, step)
    last = at + 1 == len(frames)
    for number, value in enumerate(values if frame.moves else values[:1]):
        env[frame.place] = value
        now = plus(epoch, frame.each, number)
        if last:
            yield now
        else:
            yield from _loops(frames, at + 1, env, now)


def symbols_of(x: Dim) -> frozenset[Sym]:
    return symbols(x) if isinstance(x, Expr) else frozenset()


__all__ = ["Owner", "Placed", "Walker", "placed_in", "symbols_of"]
