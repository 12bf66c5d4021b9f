"""Cold data: the parent fills the caches of the processors that the next call will use.

The parent does it, since the process that is measured may not be trusted to; that process
stands still meanwhile. Each processor's own caches are filled from that processor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEAST_BYTES = 64 << 20
"""Touched where the system does not say how large its last cache is."""
SYSFS = Path("/sys/devices/system/cpu")


def cache_bytes(cpu: int = 0) -> dict[int, int]:
    """Capacity in bytes of each level's data cache, as the system reports it."""
    found: dict[int, int] = {}
    for index in sorted((SYSFS / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 0)
        if kind != "Instruction" and unit and size[:-1].isdigit():
            found[level] = int(size[:-1]) * unit
    return found


class Evictor:
    """Touches more memory than the caches of ``cpus`` hold."""

    def __init__(self, cpus: Sequence[int]) -> None:
        import numpy

        self.cpus = list(cpus)
        caches = cache_bytes(self.cpus[0] if self.cpus else 0)
        last = max(caches) if caches else 0
        self.shared = max(LEAST_BYTES, 2 * caches.get(last, 0))
        own = sum(size for level, size in caches.items() if level < last)
        self.own = min(self.shared, max(4 << 20, 4 * own))
        self.data: Any = numpy.zeros(self.shared // 8, numpy.int64)

    def __call__(self) -> None:
        import numpy

        before = os.sched_getaffinity(0) if sys.platform == "linux" else None
        try:
            for n, cpu in enumerate(self.cpus or [0]):
                if before is not None and self.cpus:
                    os.sched_setaffinity(0, [cpu])
                part = self.data if n == 0 else self.data[: self.own // 8]
                numpy.add(part, 1, out=part)
        finally:
            if before is not None:
                os.sched_setaffinity(0, before)
