"""Reductions over units are meetings: who takes part, that all come equally often, and what they
order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product as cartesian
from math import prod

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import Dim, Sym, bounds, evaluate, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.lower.rings import trips
from tilefoundry.lower.sync.edges import even, refuse_uneven
from tilefoundry.lower.sync.tree import WARP, Node, Tree, count, leaves, whole_warps
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import For, Issue, View, With

MOST = 1 << 14
"""Combinations of coordinates for which the steps of loops are counted."""


class Meetings:
    """The reductions of a kernel in which units wait for each other."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.all = [n for n in leaves(tree) if effects(_issue(n)).collective]
        self.grid = [n for n in self.all if _issue(n).attrs["scope"] == "grid"]

    def refuse(self) -> None:
        """Refuses ``sync-partial-warps`` and ``sync-loop-uneven``."""
        tree = self.tree
        for node in self.all:
            issue = _issue(node)
            several = issue.attrs["scope"] in ("warp", "cta", "grid") and not tree.lockstep
            if several and not whole_warps(node.mask):
                refuse("sync-partial-warps", issue.span, name=issue.writes[0].buffer.name,
                       threads=count(node.mask), legal="whole warps of 32 threads")  # fmt: skip
            loops = node.loops
            if loops:
                alone = issue.attrs["scope"] == "warp" and not tree.lockstep
                even(loops[-1], tree.level, WARP if alone else None)
        for node in self.grid:
            self._even(node)

    def _even(self, node: Node) -> None:
        """Whoever meets in ``node`` comes there equally often."""
        loops = node.loops
        found = {s for n in loops for x in _bounds(n) for s in symbols(x)}
        coords = sorted((s for s in found if isinstance(s, Coord) and s.axis), key=lambda s: s.key)
        if not coords:
            return
        apart = () if self.tree.lockstep else self._apart(node)
        fixed = [c for c in coords if c.axis in apart]
        moved = [c for c in coords if c.axis not in apart]
        if not moved:
            return
        known = found <= {*coords, *(n.stmt.var for n in loops)}  # type: ignore[union-attr]
        if known and prod(_extent(c) for c in coords) <= MOST:
            counts: dict[tuple[int, ...], set[int]] = {}
            for group in cartesian(*(range(_extent(c)) for c in fixed)):
                here = counts.setdefault(group, set())
                for at in cartesian(*(range(_extent(c)) for c in moved)):
                    env: dict[Sym, int] = dict(zip((*fixed, *moved), (*group, *at), strict=True))
                    here.add(_steps(loops, env))
            if all(len(here) == 1 for here in counts.values()):
                return
        assert moved[0].axis is not None
        refuse_uneven(next(n for n in loops if _touches(n, moved)), moved[0].axis.level)

    def _apart(self, node: Node) -> tuple[Axis, ...]:
        """Axes of outer units along which none waits for another in ``node``."""
        over = _issue(node).attrs["over"]
        return tuple(a for a in node.block.mesh.axes
                     if a.level != self.tree.level and a.extent > 1 and a not in over)  # fmt: skip

    def between(self, writer: Node, made: View, reader: Node, view: View) -> bool:
        """Whoever reads has met those who wrote what it reads, and will have met them again
        before they write anew."""
        shared = [n for n in writer.loops if n in reader.loops]
        pinned = _pinned(made, view)
        meetings = [m for m in self.grid if self._joins(m, writer, reader)
                    and all(a in pinned for a in self._apart(m))]  # fmt: skip
        if not any(writer.at < m.at < reader.at for m in meetings):
            return False
        return all(
            n.stmt.var in {s for x in made.index for s in symbols(x)}  # type: ignore[union-attr]
            or any(n in m.above() and not writer.at < m.at < reader.at for m in meetings)
            for n in shared
        )

    def _joins(self, meeting: Node, writer: Node, reader: Node) -> bool:
        """All participants of both take part, whenever both are executed."""
        both = writer.mask | reader.mask
        if meeting.mask & both != both:
            return False
        if not all(self._blocks(n) <= self._blocks(meeting) for n in (writer, reader)):
            return False
        around = {*writer.above(), *reader.above()}
        return all(
            n in around or (isinstance(n.stmt, For) and bounds(trips(n.stmt))[0] >= 1)
            for n in meeting.above()
            if not isinstance(n.stmt, With)
        )

    def _blocks(self, node: Node) -> frozenset[tuple[str, int]]:
        mesh = node.block.mesh
        sizes = {t.level: t.size for t in self.tree.func.topologies}
        return frozenset(
            (level, unit)
            for level in self.tree.func.target.levels[:-1]
            for unit in (mesh.units(level) if mesh.at(level) else range(sizes.get(level, 1)))
        )


def _issue(node: Node) -> Issue:
    assert isinstance(node.stmt, Issue)
    return node.stmt


def _bounds(loop: Node) -> tuple[Dim, ...]:
    assert isinstance(loop.stmt, For)
    return loop.stmt.start, loop.stmt.stop, loop.stmt.step


def _touches(loop: Node, coords: Sequence[Coord]) -> bool:
    return any(s in coords for x in _bounds(loop) for s in symbols(x))


def _extent(c: Coord) -> int:
    assert c.axis is not None
    return c.axis.extent


def _steps(loops: Sequence[Node], env: Mapping[Sym, int]) -> int:
    """How often the body of the last of ``loops`` runs."""
    if not loops:
        return 1
    loop, inner = loops[0].stmt, loops[1:]
    assert isinstance(loop, For)
    steps = range(*(int(evaluate(x, env)) for x in (loop.start, loop.stop, loop.step)))
    if any(loop.var in symbols(x) for n in inner for x in _bounds(n)):
        return sum(_steps(inner, {**env, loop.var: v}) for v in steps)
    return len(steps) * _steps(inner, env) if steps else 0


def _pinned(made: View, view: View) -> set[Axis]:
    """Axes whose units each have a part of the buffer to themselves, in both views."""
    return {
        s.axis
        for x, y in zip(made.index, view.index, strict=True)
        if x == y
        for s in symbols(x)
        if isinstance(s, Coord) and s.axis is not None and x == s.expr()
    }
