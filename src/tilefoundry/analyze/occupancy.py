"""How many units a processor carries at once, and so in how many waves they run."""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.analyze.figure import EXACT, UPPER, Figure, undecided
from tilefoundry.analyze.peak import Peak
from tilefoundry.analyze.program import Program


@dataclass(frozen=True)
class Occupancy:
    """``units`` of ``level`` on ``processors``, ``resident`` on each at once.

    ``limit`` is what keeps more from being resident; ``tail`` the units of the last wave.
    """

    level: str
    units: int
    processors: Figure
    resident: Figure
    limit: str
    waves: Figure
    tail: int

    @property
    def wave(self) -> int | None:
        """Units that run at once in a full wave."""
        if isinstance(self.processors.value, int) and isinstance(self.resident.value, int):
            return self.processors.value * self.resident.value
        return None


def occupancy(program: Program, peaks: list[Peak]) -> Occupancy | None:
    """Occupancy of the processor level; None if the program arranges no units of it.

    Storage is counted as authored; where lowering in place would let more units in, the
    number of waves is an upper bound.
    """
    processor = program.target.processor
    units = program.placed(processor.level)
    if not units:
        return None
    count = processor.count
    for outer in program.around(processor.level):
        count = program.target.grouped(outer, program.units(processor.level))
    if not isinstance(count.value, int):
        unknown = undecided(f"{count.path} is unavailable: {count.unavailable}")
        return Occupancy(processor.level, units, unknown, unknown, "", unknown, units)
    authored, limit = _resident(program, peaks, in_place=False)
    at_best, _ = _resident(program, peaks, in_place=True)
    wave = count.value * max(1, authored)
    waves = -(-units // wave)
    least = -(-units // (count.value * max(1, at_best)))
    return Occupancy(
        processor.level,
        units,
        Figure(count.value),
        Figure(max(1, authored)),
        limit,
        Figure(waves, EXACT if waves == least else UPPER),
        units - (waves - 1) * wave,
    )


def _resident(program: Program, peaks: list[Peak], in_place: bool) -> tuple[int, str]:
    """Units on one processor, and the limit that decides it (the first of equals)."""
    target, level = program.target, program.target.processor.level
    limits: list[tuple[int, str]] = []
    for peak in peaks:
        storage = peak.storage
        amount = (peak.in_place if in_place else peak.amount).value
        room = storage.processor_capacity
        if peak.level != level or room is None or room.value is None:
            continue
        reserved = storage.reserved.value if storage.reserved and storage.reserved.value else 0
        if isinstance(amount, int) and amount + reserved > 0:
            limits.append((int(room.value) // (amount + int(reserved)), storage.name))
    inner = [x for x in program.levels if program.levels.index(x) > program.levels.index(level)]
    for name in inner:
        each = _declared(program, name)
        most = target.resident.get(name)
        if each and most and isinstance(most.value, int):
            limits.append((most.value // each, name))
        for group, size in target.groups.items():
            held = target.resident.get(group)
            if each and held and isinstance(held.value, int) and isinstance(size.value, int):
                limits.append((held.value // -(-each // size.value), group))
    own = target.resident.get(level)
    if own and isinstance(own.value, int):
        limits.append((own.value, level))
    if not limits:
        return 1, level
    least = min(n for n, _ in limits)
    return least, next(name for n, name in limits if n == least)


def _declared(program: Program, level: str) -> int:
    """Units of ``level`` in one unit of the level outside of it: declared, else used."""
    sizes = {t.level: t.size for t in program.module.topologies}
    return sizes.get(level) or program.units(level)
