"""What a launch needs beside the binary."""

from __future__ import annotations

from dataclasses import dataclass

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
