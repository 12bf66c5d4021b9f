"""What a launch needs beside the binary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Where = tuple[str, int]
"""``("argument", n)``: the program's n-th tensor; ``("work", byte)``: a place in the
workspace."""


@dataclass(frozen=True)
class MapPlan:
    """A tensor map: ``dims`` in elements, innermost first, ``strides`` in bytes of dimensions 1
    and up, ``box`` in elements, the swizzle's span in bytes (0: none)."""

    where: Where
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    def row(self) -> dict[str, Any]:
        return {k: [*v] if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> MapPlan:
        kind, at = row["where"]
        dims, strides, box = (tuple(row[name]) for name in ("dims", "strides", "box"))
        return cls((kind, at), row["dtype"], dims, strides, box, row["swizzle"])


@dataclass(frozen=True)
class LaunchPlan:
    """One kernel's launch; its parameters are the ``pointers``, then the ``maps``.
    ``cooperative``: its CTAs wait for one another, so all must be resident. ``cluster``: CTAs
    that reach each other's shared memory, launched together. ``overlaps``: it waits itself for
    the end of the kernel before it, and may start earlier."""

    kernel: str
    grid: int
    threads: int
    shared_bytes: int
    cooperative: bool
    cluster: int
    overlaps: bool
    pointers: tuple[Where, ...]
    maps: tuple[MapPlan, ...]

    def row(self) -> dict[str, Any]:
        """The launch as plain data, which :meth:`of` reads."""
        pointers = [[*where] for where in self.pointers]
        return {**asdict(self), "pointers": pointers, "maps": [m.row() for m in self.maps]}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> LaunchPlan:
        pointers = tuple((kind, at) for kind, at in row["pointers"])
        return cls(**{**row, "pointers": pointers, "maps": tuple(map(MapPlan.of, row["maps"]))})
