"""Which units lack the newest version of a tile that each unit has in its own storage.

A tile may be held by several units alike. An update by some of them leaves the others with
the old one; whoever reads that computes with a value that the program does not mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.program import Buffer, For, Issue, PrimFunc, Stmt, View, When, With

Stale = dict[Buffer, int]
"""Units, as bits, that hold an old version."""


class _Walk:
    def __init__(self, func: PrimFunc) -> None:
        target = func.target
        self.level: str = target.levels[-1]
        self.private = {n for n, s in target.storages.items() if s.level == self.level}
        sizes = {t.level: t.size for t in func.topologies}
        self.every = range(sizes.get(self.level, 1))
        self.masks: dict[Mesh, int] = {}
        self.others: dict[tuple[tuple[Axis, ...], Mesh, int], int] = {}
        self.found: dict[tuple[Issue, Buffer], None] = {}

    def mask(self, mesh: Mesh) -> int:
        if mesh not in self.masks:
            units = mesh.units(self.level) if mesh.at(self.level) else self.every
            self.masks[mesh] = sum(1 << u for u in units)
        return self.masks[mesh]

    def body(self, stmts: tuple[Stmt, ...], mesh: Mesh, stale: Stale) -> None:
        for stmt in stmts:
            if isinstance(stmt, With):
                self.body(stmt.body, stmt.mesh, stale)
            elif isinstance(stmt, (For, When)):
                # a loop may run never, or again after itself
                for _ in range(2 if isinstance(stmt, For) else 1):
                    inside = dict(stale)
                    self.body(stmt.body, mesh, inside)
                    for buffer, units in inside.items():
                        stale[buffer] = stale.get(buffer, 0) | units
            elif isinstance(stmt, Issue):
                self.issue(stmt, self.mask(mesh), stale)

    def issue(self, issue: Issue, mask: int, stale: Stale) -> None:
        read = {v.buffer for v in issue.reads if isinstance(v, View)}
        for buffer in read:
            if stale.get(buffer, 0) & mask:
                self.found[issue, buffer] = None
        for view in issue.writes:
            buffer = view.buffer
            if buffer.storage not in self.private:
                continue
            old = stale.get(buffer, 0)
            if view.is_whole and buffer not in read:
                old &= ~mask
            stale[buffer] = old | self.apart(buffer, mask)

    def apart(self, buffer: Buffer, mask: int) -> int:
        """Units that hold an element which units of ``mask`` hold too, but are not of them."""
        split = buffer.layout.split_axes if buffer.layout is not None else ()
        axes = tuple(a for a in split if a.level == self.level)
        key = axes, buffer.mesh, mask
        if key not in self.others:
            held = buffer.mesh.units(self.level) if buffer.mesh.at(self.level) else self.every
            places: dict[tuple[int, ...], int] = {}
            for unit in held if axes else self.every:
                place = tuple(_coordinate(a, unit) for a in axes)
                places[place] = places.get(place, 0) | 1 << unit
            alike = sum(units for units in places.values() if units & mask)
            self.others[key] = alike & ~mask
        return self.others[key]


def _coordinate(axis: Axis, unit: int) -> int:
    return (unit - axis.offset) // axis.stride % axis.extent


def stale_reads(func: PrimFunc) -> Iterator[tuple[Issue, Buffer]]:
    """Issues that read a tile of the units' own storage where some participant has missed an
    update by others, in program order."""
    walk = _Walk(func)
    walk.body(func.body, Mesh(), {})
    yield from walk.found


__all__ = ["stale_reads"]
