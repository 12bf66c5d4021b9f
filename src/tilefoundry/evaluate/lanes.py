"""Values of units in lock-step: one for all, or one row per coordinate tuple."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilefoundry.ir.mesh import Axis, Mesh

Rows = np.ndarray
"""One int64 per unit: a coordinate, the value of an index, a row of another table."""


class Units:
    """Distinct coordinate tuples on ``axes``, one per row of ``table`` [n, len(axes)].

    Made by :class:`Enumeration`, which keeps equal ones as one object.
    """

    def __init__(self, axes: tuple[Axis, ...], table: np.ndarray) -> None:
        self.axes = axes
        self.table = table
        self._places: dict[Units, Rows | None] = {}
        self._on: dict[tuple[Units, str], Any] = {}

    def __len__(self) -> int:
        return len(self.table)

    def column(self, axis: Axis) -> Rows:
        """The coordinate on ``axis`` of every row."""
        return self.table[:, self.axes.index(axis)]

    def numbers(self, axes: Sequence[Axis] | None = None) -> Rows:
        """Every row as one number from 0, different for different coordinates on ``axes``."""
        out = np.zeros(len(self), np.int64)
        for axis in self.axes if axes is None else axes:
            out = out * axis.extent + self.column(axis)
        return out

    def find(self, target: Units) -> Rows:
        """For every row, the row of ``target`` of the same unit; -1 where it has none."""
        known = target.numbers()
        order = np.argsort(known, kind="stable")
        wanted = self.numbers(target.axes)
        at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
        found = order[at]
        return np.where(known[found] == wanted, found, -1)

    def places(self, target: Units) -> Rows | None:
        """:meth:`find` where every unit is found; None where that is 0, 1, 2, ..."""
        if target is self:
            return None
        if target not in self._places:
            found = self.find(target)
            assert (found >= 0).all(), (self.axes, target.axes)
            same = len(found) == len(target) and bool((found == np.arange(len(found))).all())
            self._places[target] = None if same else found
        return self._places[target]

    def places_on(self, target: Units, device: str) -> Any:
        """:meth:`places` as a torch index on ``device``."""
        import torch

        if (target, device) not in self._on:
            places = self.places(target)
            self._on[target, device] = None if places is None else torch.tensor(places).to(device)
        return self._on[target, device]


ALL = Units((), np.zeros((1, 0), np.int64))
"""The units of a value that is the same for all: one row."""


@dataclass(eq=False)
class Lanes:
    """A value per unit. ``units`` is :data:`ALL`: ``value`` is that of every unit.

    Otherwise a tensor with one row per unit in front (an int64 array for an index, a tuple
    for a tuple), or a list of tensors where shapes differ or a stack would be too large.
    ``owner`` says, for a shared destination inside a loop whose trips differ between
    units, which unit wrote each element (see owners.py; 0: none yet).
    """

    units: Units
    value: Any
    owner: Any = field(default=None)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.units.axes


def uniform(value: Any) -> Lanes:
    """The same value for all units."""
    return Lanes(ALL, value)


def join(axes: Iterable[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """The union of axes, in a fixed order."""
    groups = [group for group in axes if group]
    if not groups:
        return ()
    if all(group == groups[0] for group in groups):
        return groups[0]
    found = {a for group in groups for a in group}
    return tuple(sorted(found, key=lambda a: (a.level, -a.stride, a.name, a.offset, a.extent)))


class Enumeration:
    """Which coordinate tuples occur, for sets of axes under a mesh in force."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Axis, ...], Mesh], Units] = {}
        self._kept: dict[tuple[tuple[Axis, ...], bytes], Units] = {}

    def keep(self, axes: tuple[Axis, ...], table: np.ndarray) -> Units:
        """The one object for these coordinate tuples."""
        if not axes:
            return ALL
        table = np.ascontiguousarray(table)
        return self._kept.setdefault((axes, table.tobytes()), Units(axes, table))

    def units(self, axes: tuple[Axis, ...], mesh: Mesh) -> Units:
        """Coordinate tuples on ``axes`` that units of ``mesh`` have.

        Axes of the mesh in force vary freely; an axis of another arrangement of the
        same level is the same unit seen through that arrangement.
        """
        found = self._known.get((axes, mesh))
        if found is None:
            found = self._known[axes, mesh] = self.keep(axes, self._enumerate(axes, mesh))
        return found

    def _enumerate(self, axes: tuple[Axis, ...], mesh: Mesh) -> np.ndarray:
        levels = list(dict.fromkeys(a.level for a in axes))
        parts = [self._level(v, [a for a in axes if a.level == v], mesh) for v in levels]
        picks = _cartesian([len(p) for p in parts])
        columns: dict[Axis, Rows] = {}
        for n, (level, part) in enumerate(zip(levels, parts, strict=True)):
            mine = [a for a in axes if a.level == level]
            columns |= {a: part[picks[:, n], i] for i, a in enumerate(mine)}
        return np.stack([columns[a] for a in axes], axis=1) if axes else ALL.table

    def _level(self, level: str, axes: list[Axis], mesh: Mesh) -> np.ndarray:
        here = mesh.at(level)
        if not here or all(a in here for a in axes):
            return _cartesian([a.extent for a in axes])
        coordinates = _cartesian([a.extent for a in here])
        unit = mesh.offset(level) + coordinates @ np.array([a.stride for a in here])
        columns = [
            coordinates[:, here.index(a)] if a in here else (unit - a.offset) // a.stride % a.extent
            for a in axes
        ]
        rows = np.stack(columns, axis=1)
        _, first = np.unique(rows, axis=0, return_index=True)
        return rows[np.sort(first)]


def _cartesian(extents: list[int]) -> np.ndarray:
    """Every coordinate tuple, the last axis fastest: [prod(extents), len(extents)]."""
    grid = np.indices(extents, dtype=np.int64) if extents else np.zeros((0,), np.int64)
    return grid.reshape(len(extents), prod(extents)).T.copy()
