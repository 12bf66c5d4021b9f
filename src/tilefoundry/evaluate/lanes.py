"""Values of units in lock-step: one tensor for all, or one per coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product as cartesian
from typing import Any

from tilefoundry.ir.mesh import Axis, Mesh

Key = tuple[int, ...]


@dataclass(eq=False)
class Lanes:
    """``parts`` holds one value per coordinate tuple on ``axes``; no axes: one for all.

    ``owner`` says, for a shared destination inside a loop whose trips differ between
    units, which unit wrote each element (0: none yet).
    """

    axes: tuple[Axis, ...]
    parts: dict[Key, Any]
    owner: Any = field(default=None)

    @property
    def one(self) -> Any:
        """The value of a uniform quantity."""
        return self.parts[()]


def uniform(value: Any) -> Lanes:
    """The same value for all units."""
    return Lanes((), {(): value})


def join(axes: Iterable[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """The union of axes, in a fixed order."""
    found = {a for group in axes for a in group}
    return tuple(sorted(found, key=lambda a: (a.level, -a.stride, a.name, a.offset, a.extent)))


def project(source: tuple[Axis, ...], key: Key, target: tuple[Axis, ...]) -> Key:
    """The part of ``key`` that ``target`` names."""
    at = dict(zip(source, key, strict=True))
    return tuple(at[a] for a in target)


class Enumeration:
    """Which coordinate tuples occur, for sets of axes under a mesh in force."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Axis, ...], Mesh], tuple[Key, ...]] = {}

    def keys(self, axes: tuple[Axis, ...], mesh: Mesh) -> tuple[Key, ...]:
        """Coordinate tuples on ``axes`` that units of ``mesh`` have.

        Axes of the mesh in force vary freely; an axis of another arrangement of the
        same level is the same unit seen through that arrangement.
        """
        found = self._known.get((axes, mesh))
        if found is None:
            found = self._known[axes, mesh] = tuple(self._enumerate(axes, mesh))
        return found

    def _enumerate(self, axes: tuple[Axis, ...], mesh: Mesh) -> Iterable[Key]:
        levels = list(dict.fromkeys(a.level for a in axes))
        columns: list[list[Mapping[Axis, int]]] = []
        for level in levels:
            mine = [a for a in axes if a.level == level]
            columns.append(self._level(level, mine, mesh))
        for row in cartesian(*columns):
            at = {a: c for part in row for a, c in part.items()}
            yield tuple(at[a] for a in axes)

    def _level(self, level: str, axes: list[Axis], mesh: Mesh) -> list[Mapping[Axis, int]]:
        here = mesh.at(level)
        if not here or all(a in here for a in axes):
            ranges = cartesian(*(range(a.extent) for a in axes))
            return [dict(zip(axes, c, strict=True)) for c in ranges]
        rows: dict[Key, Mapping[Axis, int]] = {}
        for unit, crd in zip(
            mesh.units(level), cartesian(*(range(a.extent) for a in here)), strict=True
        ):
            at = dict(zip(here, crd, strict=True))
            row = {a: at.get(a, (unit - a.offset) // a.stride % a.extent) for a in axes}
            rows.setdefault(tuple(row.values()), row)
        return list(rows.values())
