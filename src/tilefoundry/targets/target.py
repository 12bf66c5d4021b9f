"""A target: one Device document composed with its Architecture document.

Analyses ask it for levels, storages, rates and limits by role, never by vendor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilefoundry.diag import refuse
from tilefoundry.targets.document import Device
from tilefoundry.targets.fact import Fact
from tilefoundry.targets.schema import FLOATS, INTEGERS

THREAD = "thread"
"""The innermost level of targets whose units go their own way."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Where values live.

    ``level`` owns an instance (None: all units share one); ``pool`` is the level whose
    units the capacity counts for: a register belongs to a thread, the register file's
    capacity to the CTA. All sizes are facts in bytes:

    - ``capacity`` of one unit of ``pool`` (of the device, if None);
    - ``processor_capacity`` that units resident on one processor share;
    - ``reserved`` of the capacity of a processor, by each unit of ``pool``;
    - ``granule`` that an allocation is rounded up to;
    - ``unit_limit`` of one unit of ``level``, where that is less than its pool.
    """

    name: str
    level: str | None
    pool: str | None
    memory: str
    capacity: Fact
    processor_capacity: Fact | None = None
    reserved: Fact | None = None
    granule: Fact | None = None
    unit_limit: Fact | None = None


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache between the processors and the farthest storage.

    ``scope`` says who shares one instance: ``device``, ``group`` (of ``sharers``
    processors) or ``processor``. ``capacity`` in bytes is what reuse can count on.
    """

    name: str
    scope: str
    capacity: Fact
    line: Fact | None = None
    sharers: Fact | None = None


@dataclass(frozen=True, slots=True)
class Processor:
    """The hardware that carries units of ``level``: an SM carries CTAs, a core is a core.

    ``resident`` holds, by level or group, the most units one processor carries at once.
    """

    name: str
    level: str
    count: Fact
    resident: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class RegisterFile:
    """The registers of a processor, which its units share.

    A unit has at most ``most``, and a multiple of ``step``. ``least``: the fewest that a unit
    may keep where groups of ``group`` units hand theirs over to others; None where they cannot.
    """

    count: int
    most: int
    step: int
    group: int
    least: int | None

    def even(self, units: int) -> int:
        """Registers of each of ``units`` that are launched together."""
        return min(self.most, self.count // max(units, 1) // self.step * self.step)


@dataclass(frozen=True, eq=False)
class Target:
    """The hardware as analyses see it; immutable, compared by identity."""

    device: Device

    @property
    def id(self) -> str:
        return self.device.id

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def family(self) -> str:
        return self.device.family

    @property
    def architecture(self) -> str:
        """Id of the Architecture document."""
        return self.device.architecture.id

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Instruction families of the architecture."""
        return self.device.architecture.capabilities

    @property
    def levels(self) -> tuple[str, ...]:
        """Parallel levels, outermost first."""
        return self.device.architecture.shape.levels

    @property
    def in_step(self) -> bool:
        """Units of the innermost level are the lanes of one vector: each statement is done in
        all of them before the next one."""
        return self.levels[-1] != THREAD

    @property
    def optional_levels(self) -> tuple[str, ...]:
        """Levels that a program may leave out."""
        return self.device.architecture.shape.optional

    # ---- facts

    @cached_property
    def _facts(self) -> dict[str, Fact]:
        # A device states more exactly what its architecture states in general.
        both = {**self.device.architecture.facts, **self.device.facts}
        return dict(sorted(both.items()))

    def facts(self) -> Iterator[Fact]:
        """Every fact, in order of path."""
        return iter(self._facts.values())

    def stated(self, path: str) -> Fact | None:
        """The fact at ``path``, or None if neither document states it."""
        return self._facts.get(path)

    def fact(self, path: str) -> Fact:
        """The fact at ``path``, known or not; refuses a path that neither document states."""
        fact = self._facts.get(path)
        if fact is None:
            import difflib

            near = (difflib.get_close_matches(path, self._facts, 1) or ["none"])[0]
            refuse("target-fact-absent", path=path, id=self.id, near=near)
        return fact

    # ---- units

    @cached_property
    def processor(self) -> Processor:
        shape = self.device.architecture.shape
        names = (*shape.levels, *shape.groups)
        resident = {n: f for n in names if (f := self.stated(f"resident.{n}"))}
        count = self.fact("processors.count")
        return Processor(shape.processor, shape.processor_level, count, resident)

    @property
    def resident(self) -> Mapping[str, Fact]:
        """Most units (by level or group) that one processor carries at once."""
        return self.processor.resident

    def grouped(self, level: str, size: int) -> Fact:
        """Processors that units of ``level`` can use whose ``size`` members run together, on
        processors that are near each other: all, where nothing else is stated."""
        return self.stated(f"processors.grouped.{level}.of_{size}") or self.processor.count

    @cached_property
    def groups(self) -> Mapping[str, Fact]:
        """Named sets of innermost units and their size, such as a warp of 32 threads."""
        names = self.device.architecture.shape.groups
        return {name: self.fact(f"group.{name}.size") for name in names}

    def max_units(self, level: str, per: str | None = None) -> Fact | None:
        """The most units of ``level`` in one unit of ``per``; None if nothing is stated.

        ``per`` is by default the nearest outer level that is not optional. Of the
        outermost level it is the whole machine; where that level is a processor, as
        many as there are processors.
        """
        shape = self.device.architecture.shape
        outer = per or shape.enclosing(level) or "machine"
        if outer == "machine" and level == shape.processor_level:
            return self.processor.count
        return self.stated(f"units.{level}.per.{outer}")

    @cached_property
    def registers(self) -> RegisterFile | None:
        """None where the innermost units have none of their own, or how many is not known."""
        paths = ("registers.count", "registers.per_unit", "registers.granule")
        found = [f.value if (f := self.stated(path)) else None for path in paths]
        sizes = [size for f in self.groups.values() if isinstance(size := f.value, int)]
        count, most, granule = (n if isinstance(n, int) else None for n in found)
        if count is None or most is None or granule is None or not sizes:
            return None
        least = self.stated("limits.setmaxnreg.min")
        fewest = least.value if least and isinstance(least.value, int) else None
        return RegisterFile(count, most, granule // min(sizes), max(sizes), fewest)

    # ---- memory

    @cached_property
    def storages(self) -> Mapping[str, Storage]:
        """By name, the farthest from the processor first."""
        storages: dict[str, Storage] = {}
        for form in self.device.architecture.shape.storages:
            memory = form.memory or self.device.memories[form.name]
            at = f"memory.{memory}"
            storages[form.name] = Storage(
                form.name,
                form.level,
                form.pool,
                memory,
                self.fact(f"{at}.capacity"),
                self.stated(f"{at}.processor_capacity"),
                self.stated(f"{at}.reserved"),
                self.stated(f"{at}.granule"),
                self.stated(f"{at}.unit_limit"),
            )
        return storages

    @property
    def default_storage(self) -> str:
        """Where parameters and results live: the farthest storage."""
        return next(iter(self.storages))

    @cached_property
    def caches(self) -> Mapping[str, Cache]:
        """By name, the farthest from the processor first."""
        caches: dict[str, Cache] = {}
        for name, scope in self.device.architecture.shape.caches.items():
            at = f"memory.{name}"
            line, sharers = self.stated(f"{at}.line"), self.stated(f"{at}.sharers")
            caches[name] = Cache(name, scope, self.fact(f"{at}.capacity"), line, sharers)
        return caches

    def bandwidth(self, place: str) -> Fact | None:
        """Peak bytes per second of a storage or cache, all processors together.

        Stated, or derived from bytes per clock and processor; None if neither is stated.
        """
        at = f"memory.{self._memory(place)}"
        if (stated := self.stated(f"{at}.bandwidth")) and stated.known:
            return stated
        return self._at_clock(f"{at}.bandwidth", "byte/s", f"{at}.rate") or stated

    def copy_bandwidth(self, place: str) -> Fact | None:
        """Bytes per second that a copy reached, read and write counted; None if not stated."""
        return self.stated(f"memory.{self._memory(place)}.copy_bandwidth")

    def _memory(self, place: str) -> str:
        return self.storages[place].memory if place in self.storages else place

    # ---- rates

    def clock(self, use: str = "vector") -> Fact:
        """The clock in Hz that bounds ``use`` (``vector`` or ``matrix``) from above.

        For matrix work the matrix clock where one is stated; else the boost clock, else
        the base clock.
        """
        order = ("matrix", "boost", "base") if use == "matrix" else ("boost", "base")
        stated = [fact for name in order if (fact := self.stated(f"clock.{name}"))]
        return next((fact for fact in stated if fact.known), stated[-1])

    def flops_rate(self, kind: str, dtype: str) -> Fact | None:
        """Operations per second of all ``matrix`` or ``vector`` units on ``dtype`` inputs.

        A multiply-add counts two. The stated peak, or one derived from the rate per clock
        and processor; not known if that cannot be; None if no document states any: a
        dtype never borrows another's rate.
        """
        path = f"peak.{kind}.{dtype}"
        if (stated := self.stated(path)) and stated.known:
            return stated
        unit = "op/s" if dtype in INTEGERS else "flop/s"
        if kind == "matrix":
            return self._at_clock(path, unit, f"rate.matrix.{dtype}", "matrix") or stated
        if dtype in FLOATS:
            return self._at_clock(path, unit, f"rate.fma.{dtype}", each=2) or stated
        return stated

    def op_rate(self, op: str) -> Fact | None:
        """Operations per second of one class, all processors together.

        ``special`` (ex2, lg2, rcp, rsqrt), ``integer``, ``compare``, ``select``,
        ``shuffle`` or ``convert``; None if no document states it.
        """
        return self._at_clock(f"rate.{op}", "op/s", f"rate.{op}")

    def _at_clock(
        self, path: str, unit: str, rate_path: str, use: str = "vector", each: int = 1
    ) -> Fact | None:
        """Rate per clock and processor, times processors, clock and operations each."""
        rate = self.stated(rate_path)
        if rate is None:
            return None
        count, clock = self.processor.count, self.clock(use)
        if rate.value is None or count.value is None or clock.value is None:
            unknown = next(fact for fact in (rate, count, clock) if not fact.known)
            reason = unknown.unavailable
            if unknown.path != path:
                reason = f"{unknown.path} is unavailable: {reason}"
            return Fact(path, unit, unavailable=reason, document=self.id)
        times = f" x {each} flop" if each != 1 else ""
        explanation = (
            f"{rate.value} {rate.unit} ({rate.path}) x {count.value} processors"
            f" x {clock.value} Hz ({clock.path}){times}"
        )
        value = rate.value * each * count.value * clock.value
        sources = dict.fromkeys(f.source for f in (rate, count, clock))
        conditions = "; ".join(dict.fromkeys(f.conditions for f in (rate, clock) if f.conditions))
        return Fact(
            path,
            unit,
            value,
            "derived",
            "; ".join(sources),
            conditions,
            explanation,
            document=self.id,
        )
