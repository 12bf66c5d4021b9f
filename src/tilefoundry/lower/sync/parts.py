"""Accesses cut into those of a few warpgroups, each with its own window, where no other access
ties them: who touches only what one of them touches need not wait for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lower.sync.access import Access, Accesses, apart, registers
from tilefoundry.lower.sync.tree import GROUP, Node, Tree
from tilefoundry.tir.program import window


class Parts:
    """The accesses of each statement: whole, or in parts of their own threads and windows."""

    def __init__(self, tree: Tree, accesses: Accesses) -> None:
        self.tree = tree
        self.accesses = accesses
        self._parts: dict[Access, tuple[Access, ...]] = {}
        for found in accesses.stores.values():
            groups = {a: self._groups(a) for a in found}
            if any(len(g) > 1 for g in groups.values()):
                self._cut(groups)

    def of(self, node: Node) -> list[Access]:
        return [p for a in self.accesses.of[node] for p in self._parts.get(a, (a,))]

    def _groups(self, a: Access) -> list[Access]:
        """``a`` by warpgroups, if all its threads are of whole ones and move elements one by
        one between memory and registers."""
        held = registers(a)
        if a.engine != "none" or a.node.mask != a.mask or held is None or not held.is_whole:
            return [a]
        layout, masks = held.buffer.layout, _warpgroups(a.mask)
        if layout is None or layout.partial or len(masks) < 2:
            return [a]
        return [self._part(a, layout, held.shape, mask) for mask in masks]

    def _part(self, a: Access, layout: ShardLayout, shape: tuple[int, ...], mask: int) -> Access:
        box = _held(layout, shape, self.tree, mask)
        view = window(a.view, tuple(lo for lo, _ in box), tuple(hi - lo + 1 for lo, hi in box))
        return replace(a, view=view, mask=mask, origin=a)

    def _cut(self, groups: dict[Access, list[Access]]) -> None:
        tied = _tied([p for parts in groups.values() for p in parts])
        for access, parts in groups.items():
            masks: dict[int, int] = {}
            for p in parts:
                masks[tied[p]] = masks.get(tied[p], 0) | p.mask
            mesh = access.node.block.mesh
            if len(masks) < 2 or not all(self.tree.declare(m, mesh) for m in masks.values()):
                continue
            held = registers(access)
            assert held is not None and held.buffer.layout is not None
            layout = held.buffer.layout
            self._parts[access] = tuple(
                self._part(access, layout, held.shape, m) for m in masks.values()
            )


def _tied(parts: Sequence[Access]) -> dict[Access, int]:
    """A number for each, the same for those that touch an element in common, directly or
    through others."""
    number = {p: n for n, p in enumerate(parts)}
    for n, a in enumerate(parts):
        for b in parts[n + 1 :]:
            old, new = number[b], number[a]
            if old != new and (a.write or b.write) and not apart(a, b, False):
                number = {p: new if x == old else x for p, x in number.items()}
    return number


def _warpgroups(mask: int) -> list[int]:
    """``mask`` as whole warpgroups; empty if it is not made of such."""
    one = (1 << GROUP) - 1
    masks = [mask & one << n for n in range(0, mask.bit_length(), GROUP)]
    found = [m for m in masks if m]
    return found if all(m.bit_count() == GROUP for m in found) else []


def _held(
    layout: ShardLayout, shape: tuple[int, ...], tree: Tree, mask: int
) -> list[tuple[int, int]]:
    """Along each axis the first and the last index that threads of ``mask`` hold."""
    digits = [d for d in layout.digits(shape) if d.axis.level == tree.level]
    threads = [t for t in range(mask.bit_length()) if mask >> t & 1]
    out: list[tuple[int, int]] = []
    for dim, extent in enumerate(shape):
        own = [d for d in digits if d.dim == dim]
        at: set[tuple[Dim, ...]] = {tuple(_coordinate(d.axis, t) for d in own) for t in threads}
        held = [i for i in range(extent) if tuple(i // d.inner % d.axis.extent for d in own) in at]
        out.append((held[0], held[-1]))
    return out


def _coordinate(axis: Axis, unit: int) -> int:
    return (unit - axis.offset) // axis.stride % axis.extent


__all__ = ["Parts"]
