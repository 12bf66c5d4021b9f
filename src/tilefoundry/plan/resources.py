"""What a plan takes of a processor, and whether the target has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilefoundry.lower.allocate import BARRIER_BYTES, up
from tilefoundry.lower.registers import OVERHEAD
from tilefoundry.plan.site import Alive
from tilefoundry.plan.tiles import Tile, words_of
from tilefoundry.targets.fact import Fact
from tilefoundry.targets.target import Storage, Target

LINE = 128
"""Bytes that every shared buffer is aligned to."""
SPARE = 16
"""Registers that a role which gives up its share keeps beyond its estimate."""


class Capacities:
    """The limits of one target, by role; None where its documents state none."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.level = target.processor.level
        self.unit = target.levels[-1]

    def _value(self, fact: Fact | None) -> int | None:
        return int(fact.value) if fact is not None and fact.value is not None else None

    def stated(self, path: str) -> int | None:
        return self._value(self.target.stated(path))

    @cached_property
    def shared(self) -> Storage | None:
        """The storage that the units of one processor-level unit share."""
        return next((s for s in self.target.storages.values() if s.level == self.level), None)

    @cached_property
    def shared_bytes(self) -> int | None:
        return self._value(self.shared.capacity) if self.shared else None

    @cached_property
    def units(self) -> int | None:
        """Most innermost units of one processor-level unit."""
        return self._value(self.target.max_units(self.unit))

    @cached_property
    def small(self) -> int:
        """Units of the smallest group that the hardware knows: those of one loading role."""
        sizes = [self._value(f) for f in self.target.groups.values()]
        return min((s for s in sizes if s), default=1)

    @cached_property
    def reallocates(self) -> bool:
        """Roles may re-partition the register file."""
        return self.stated("limits.setmaxnreg.step") is not None

    def even(self, units: int) -> int | None:
        """Registers of one unit when all have the same."""
        file = self.target.registers
        return None if file is None else file.even(units)


@dataclass(frozen=True)
class Registers:
    """Per unit: what a consumer needs, what it and the others get (0: no re-partition), and
    what each holds at launch."""

    need: int
    consumer: int
    others: int
    launch: int

    def text(self) -> str:
        words = f"registers={self.need}"
        if self.others:
            words += f" given={self.consumer},{self.others}"
        return words


@dataclass(frozen=True)
class Short:
    """What is missing of a capacity, and in words."""

    lacking: int
    words: str


def registers(
    caps: Capacities, need: int, issue: int, units: int, lead: int, group: int
) -> Registers | Short:
    """How ``units`` threads, of which the first ``lead`` are not consumers, share the file.

    ``need`` are a consumer's registers, ``issue`` those of one issue's accumulator, which must
    fit before roles re-partition. Says what is short where they do not fit.
    """
    even = caps.even(units)
    most = caps.stated("registers.per_unit")
    if even is None or most is None:
        return Registers(need, need, 0, need)
    if need > most:
        return Short(need - most, f"a consumer needs {need} registers, a {caps.unit} has {most}")
    if need <= even:
        return Registers(need, need, 0, up(need, 8))
    if not (caps.reallocates and lead and lead % group == 0):
        words = f"a consumer needs {need} registers, {units} {caps.unit}s have {even} each"
        return Short(need - even, words)
    step = caps.stated("limits.setmaxnreg.step") or 8
    least = caps.stated("limits.setmaxnreg.min") or step
    if issue + OVERHEAD > even:
        words = f"one issue needs {issue + OVERHEAD} registers, {even} are there at launch"
        return Short(issue + OVERHEAD - even, words)
    low = up(max(least, OVERHEAD) + SPARE, step)
    pool = even * units - low * lead
    share = min(most // step * step, pool // (units - lead) // step * step)
    if need > share:
        words = f"a consumer of {units} {caps.unit}s needs {need} registers, {share} are left to it"
        return Short(need - share, words)
    return Registers(need, share, low, even)


def slot_bytes(tile: Tile) -> int:
    """Bytes of one slot, aligned as its swizzle demands (8 rows of the span)."""
    return up(int(tile.type.nbytes()), alignment(tile))  # type: ignore[arg-type]


def alignment(tile: Tile) -> int:
    swizzle = tile.type.layout.swizzle if tile.type.layout is not None else None
    return LINE if swizzle is None else max(LINE, 1 << (swizzle.B + swizzle.M + swizzle.S))


def barrier_bytes(slots: int, readers: int, staged: bool) -> int:
    """A full and an empty barrier for each slot of the rings that one statement reads
    (``readers`` statements); for a staged tile one each way."""
    return BARRIER_BYTES * (2 * slots * readers + (2 if staged else 0))


def consumer_registers(held: Tile, fragments: tuple[Tile, ...], alive: Sequence[Alive]) -> int:
    """The accumulator with the fragments of a step, or what is alive while the result is made."""
    acc = words_of(held.type)
    made = (-(-acc * a.bits // held.type.dtype.bits) + a.words for a in alive)
    return max(acc + sum(words_of(t.type) for t in fragments), *made) + OVERHEAD


def resident(caps: Capacities, bytes: int, units: int, launch: int) -> tuple[int, str]:
    """Processor-level units that one processor carries, and what keeps out the next."""
    limits: list[tuple[int, str]] = []
    shared = caps.shared
    if shared is not None and shared.processor_capacity is not None:
        whole = int(shared.processor_capacity.value or 0)
        kept = int(shared.reserved.value or 0) if shared.reserved else 0
        if whole:
            limits.append((whole // (bytes + kept), shared.name))
    count = caps.stated("registers.count")
    if count is not None:
        limits.append((count // (units * launch), "registers"))
    most = caps.target.resident
    for name, fact in most.items():
        have = int(fact.value or 0)
        if name == caps.unit:
            limits.append((have // units, name))
        elif name == caps.level:
            limits.append((have, name))
        elif name in caps.target.groups:
            size = int(caps.target.groups[name].value or 1)
            limits.append((have // -(-units // size), name))
    least = min(n for n, _ in limits) if limits else 1
    return least, next((name for n, name in limits if n == least), caps.level)
