"""How often blocks have met before a statement: what orders their accesses to device memory.

A barrier of the grid is a meeting of all blocks, a reduction over CTAs one of those that differ
along its axes alone, as no other block is waited for.
"""

from __future__ import annotations

from typing import TypeAlias

from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.program import For, Issue, Stmt, Sync, When, With
from tilefoundry.verify.roles import Layout, coordinate, inner_levels

Epoch: TypeAlias = tuple[int, ...]
"""Of each kind of meeting, how many are over."""
Groups: TypeAlias = tuple[int, ...]
"""Who meets: of each block, by number, its group; -1 where it takes no part."""


class Rounds:
    """The kinds of meetings of a kernel, and how many of each are sure to be in its parts."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._kinds: dict[Groups, int] = {}
        self._kind: dict[Stmt, int] = {}
        self._known: dict[tuple[Axis, ...], Groups] = {}
        self._find(layout.func.body, Mesh())
        self.none: Epoch = (0,) * len(self._kinds)
        self.groups: tuple[Groups, ...] = tuple(self._kinds)
        self.whole = tuple(n for n, g in enumerate(self.groups) if set(g) == {0})
        """The kinds in which all blocks meet."""

    def _find(self, body: tuple[Stmt, ...], mesh: Mesh) -> None:
        for stmt in body:
            if isinstance(stmt, With):
                self._find(stmt.body, stmt.mesh)
            elif isinstance(stmt, (For, When)):
                self._find(stmt.body, mesh)
            else:
                groups = self._met(stmt, mesh)
                if groups is not None:
                    self._kind[stmt] = self._kinds.setdefault(groups, len(self._kinds))

    def _met(self, stmt: Stmt, mesh: Mesh) -> Groups | None:
        inner = inner_levels(self.layout.func)
        apart: tuple[Axis, ...] = ()
        if isinstance(stmt, Issue) and stmt.attrs.get("scope") == "grid":
            over = stmt.attrs["over"]
            apart = tuple(
                a for a in mesh.axes if a.level not in inner and a not in over and a.extent > 1
            )
        elif not (isinstance(stmt, Sync) and stmt.kind == "grid"):
            return None
        numbers: dict[tuple[int, ...], int] = {}
        out: list[int] = []
        for block in self.layout.blocks:
            at = tuple(coordinate(a, block.get(a.level, 0)) for a in apart)
            inside = self.layout.inside(mesh, block)
            out.append(numbers.setdefault(at, len(numbers)) if inside else -1)
        return tuple(out)

    def of(self, body: tuple[Stmt, ...]) -> Epoch:
        """How many meetings there are in ``body``, whenever it is executed."""
        if not self._kinds:
            return ()
        total = self.none
        for stmt in body:
            if isinstance(stmt, (With, For, When)):
                trips = self._trips(stmt)
                if trips:
                    total = plus(total, self.of(stmt.body), trips)
            elif stmt in self._kind:
                n = self._kind[stmt]
                total = (*total[:n], total[n] + 1, *total[n + 1 :])
        return total

    def counted(self, stmt: With | For | When) -> bool:
        """Meetings inside are as many for all blocks and at any time."""
        return not self._kinds or self._trips(stmt) is not None

    def _trips(self, stmt: With | For | When) -> int | None:
        if isinstance(stmt, With):
            return 1
        if isinstance(stmt, For):
            start, stop, step = stmt.start, stmt.stop, stmt.step
            if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
                return len(range(start, stop, step))
        return None

    def ordered(self, one: tuple[int, Epoch], other: tuple[int, Epoch]) -> bool:
        """The two, as (block, meetings before), have met between what they do."""
        return any(
            a != b and of[one[0]] == of[other[0]] >= 0
            for a, b, of in zip(one[1], other[1], self.groups, strict=True)
        )


def plus(epoch: Epoch, more: Epoch, times: int = 1) -> Epoch:
    return tuple(a + times * b for a, b in zip(epoch, more, strict=True)) if more else epoch


__all__ = ["Epoch", "Rounds", "plus"]
