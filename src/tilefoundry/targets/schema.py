"""The typed schema of fact paths: what a document of a family may and must state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.targets.fact import Entry, Family

VERSION = 3
KINDS = ("architecture", "device")
ARCHITECTURE, DEVICE, EITHER = ("architecture",), ("device",), KINDS

FLOATS = (*(d.name for d in DTYPES.values() if d.is_float), "tf32")
INTEGERS = tuple(d.name for d in DTYPES.values() if d.kind in ("int", "uint"))

OPS = ("integer", "compare", "select", "special", "shuffle", "convert")
"""Operation classes that have a rate of their own; ``special`` is ex2, lg2, rcp, rsqrt."""

NUMBER = re.compile(r"[1-9][0-9]*$")

CLOCKS = ("boost", "base", "matrix", "sustained")

PER_MEMORY: tuple[tuple[str, str, str], ...] = (
    ("capacity", "byte", "whole"),
    ("reported", "byte", "whole"),
    ("processor_capacity", "byte", "whole"),
    ("reserved", "byte", "whole"),
    ("granule", "byte", "whole"),
    ("unit_limit", "byte", "whole"),
    ("line", "byte", "whole"),
    ("sector", "byte", "whole"),
    ("banks", "bank", "whole"),
    ("bank_width", "byte", "whole"),
    ("sharers", "processor", "whole"),
    ("bandwidth", "byte/s", "real"),
    ("copy_bandwidth", "byte/s", "real"),
    ("rate", "byte/clock/processor", "real"),
    ("latency", "s", "real"),
)
"""Name, unit and number of what ``memory.<name>.`` may hold."""


@dataclass(frozen=True, slots=True)
class StorageForm:
    """One ``[storages.*]`` table: owner level, level of its capacity, memory it lives in."""

    name: str
    level: str | None
    pool: str | None
    memory: str | None


@dataclass(frozen=True, slots=True)
class Shape:
    """What an Architecture document declares besides facts; facts are typed against it."""

    levels: tuple[str, ...]
    optional: tuple[str, ...]
    groups: tuple[str, ...]
    processor: str
    processor_level: str
    storages: tuple[StorageForm, ...]
    caches: Mapping[str, str]
    """Cache name → ``device``, ``group`` or ``processor``: who shares one instance."""

    def enclosing(self, level: str) -> str | None:
        """The nearest level outside ``level`` that a program cannot leave out."""
        outer = self.levels[: self.levels.index(level)]
        return next((name for name in reversed(outer) if name not in self.optional), None)


def entries(family: Family, shape: Shape) -> dict[str, Entry]:
    """Every fact path that documents of ``family`` with ``shape`` may state."""
    every = [*_units(shape), *_memory(family, shape), *_rates(), *family.entries]
    return {entry.path: entry for entry in every}


def find(known: Mapping[str, Entry], path: str) -> Entry | None:
    """The entry of ``path``, exactly, by a free last name or by a number at the end of it."""
    stem = path.rpartition(".")[0]
    numbered = NUMBER.sub("#", path)
    return known.get(path) or known.get(f"{stem}.*") or known.get(numbered)


def required(known: Iterable[Entry], kind: str) -> Iterator[Entry]:
    """Entries that a document of ``kind`` must state on its own."""
    return (e for e in known if e.required and e.kinds == (kind,))


def bound(memory: str) -> tuple[Entry, ...]:
    """What a device must state of a memory that it binds to a storage."""
    return (
        Entry(f"memory.{memory}.capacity", "byte", "whole", DEVICE, True),
        Entry(f"memory.{memory}.bandwidth", "byte/s", "real", DEVICE, True),
    )


def _units(shape: Shape) -> Iterator[Entry]:
    yield Entry("processors.count", "processor", "whole", DEVICE, True)
    yield Entry("power.limit", "W", "real", DEVICE)
    for name in CLOCKS:
        yield Entry(f"clock.{name}", "Hz", "real", DEVICE, name == "boost")
    outermost = shape.levels[0]
    yield Entry(f"units.{outermost}.per.machine", outermost, "whole", DEVICE)
    for at, inner in enumerate(shape.levels):
        nearest = shape.enclosing(inner)
        for outer in shape.levels[:at]:
            must = inner not in shape.optional and outer == nearest
            yield Entry(f"units.{inner}.per.{outer}", inner, "whole", ARCHITECTURE, must)
            if outer in shape.optional:
                yield Entry(f"units.{inner}.per.{outer}_opt_in", inner)
            if outer in shape.optional and inner == shape.processor_level:
                yield Entry(f"processors.grouped.{outer}.of_#", "processor", "whole", DEVICE)
        yield Entry(
            f"resident.{inner}", inner, "whole", ARCHITECTURE, inner == shape.processor_level
        )
        yield Entry(f"link.{inner}.bandwidth", "byte/s", "real", DEVICE)
    for group in shape.groups:
        yield Entry(f"group.{group}.size", shape.levels[-1], "whole", ARCHITECTURE, True)
        yield Entry(f"resident.{group}", group)
    yield Entry("registers.count", "register", "whole", ARCHITECTURE)
    yield Entry("registers.width", "byte", "whole", ARCHITECTURE)
    yield Entry("registers.per_unit", "register", "whole", ARCHITECTURE)
    yield Entry("registers.granule", "register", "whole", ARCHITECTURE)


def _memory(family: Family, shape: Shape) -> Iterator[Entry]:
    must = {s.memory for s in shape.storages if s.memory}
    cached = set(shape.caches)
    for memory in family.memories:
        for name, unit, number in PER_MEMORY:
            path = f"memory.{memory}.{name}"
            # A memory of the architecture has its size there; a cache's may be the device's.
            if name == "capacity" and memory in must:
                yield Entry(path, unit, "whole", ARCHITECTURE, True)
            elif name in ("capacity", "sharers") and memory in cached:
                group = shape.caches[memory] == "group"
                yield Entry(path, unit, "whole", EITHER, name == "capacity" or group)
            else:
                yield Entry(path, unit, "real" if number == "real" else "whole", EITHER)


def _rates() -> Iterator[Entry]:
    for dtype in FLOATS:
        yield Entry(
            f"rate.fma.{dtype}", "fma/clock/processor", "real", ARCHITECTURE, dtype == "f32"
        )
        yield Entry(f"rate.matrix.{dtype}", "flop/clock/processor", "real")
    for dtype in INTEGERS:
        yield Entry(f"rate.matrix.{dtype}", "op/clock/processor", "real")
    for op in OPS:
        must = op in ("integer", "special")
        yield Entry(f"rate.{op}", "op/clock/processor", "real", ARCHITECTURE, must)
    for dtype in FLOATS + INTEGERS:
        unit = "flop/s" if dtype in FLOATS else "op/s"
        yield Entry(f"peak.vector.{dtype}", unit, "real", DEVICE)
        yield Entry(f"peak.matrix.{dtype}", unit, "real", DEVICE)
        yield Entry(f"achieved.matrix.{dtype}.*", unit, "real", DEVICE)
