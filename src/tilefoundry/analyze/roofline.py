"""Time lower bounds per resource; the largest is the limit.

A bound takes distinct bytes and executed operations at the target's peak rates, on the
processors that the program's units occupy, with the last wave's imbalance.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tilefoundry.analyze.access import READ, WRITE
from tilefoundry.analyze.figure import (
    EXACT,
    LOWER,
    UPPER,
    ZERO,
    Figure,
)
from tilefoundry.analyze.function import Priced
from tilefoundry.analyze.work import Cost, Kind
from tilefoundry.targets import Fact, Target


@dataclass(frozen=True)
class Bound:
    """One resource: what it must do, at which rate, and so the least time in seconds.

    ``amount`` is in operations or bytes (``unit``); ``reason`` says why time is not known.
    """

    resource: str
    amount: Figure
    unit: str
    rate: Fact | None
    time: Fraction | None
    reason: str = ""

    @property
    def unrated(self) -> bool:
        """Whether all that lacks is a rate that the target could state and does not."""
        lacks = self.rate is not None and self.rate.value is None
        return lacks and isinstance(self.amount.value, int)


@dataclass(frozen=True)
class Roofline:
    """Bounds, the limiting one first; those not decided last.

    ``operations`` are of the largest ``kind``, ``bytes`` the distinct ones of the storage
    that all units share.
    """

    bounds: tuple[Bound, ...]
    kind: Kind | None
    operations: Figure
    bytes: Figure

    @property
    def limit(self) -> Bound | None:
        first = self.bounds[0] if self.bounds else None
        return first if first and first.time is not None else None

    @property
    def open(self) -> str:
        """Why the limit is not known although the hardware is: open extents, trip counts."""
        stuck = [b for b in self.bounds if not isinstance(b.amount.value, int)]
        return stuck[0].reason if stuck else ""

    @property
    def intensity(self) -> Fraction | None:
        """Operations of the largest kind per distinct byte of the shared storage."""
        if not isinstance(self.operations.value, int) or not isinstance(self.bytes.value, int):
            return None
        return Fraction(self.operations.value, self.bytes.value) if self.bytes.value else None

    @property
    def attainable(self) -> Fraction | None:
        """Operations of the largest kind per second at the limit."""
        limit = self.limit
        if limit is None or not limit.time or not isinstance(self.operations.value, int):
            return None
        return Fraction(self.operations.value) / limit.time


def roofline(priced: Priced) -> Roofline:
    """Every resource that the program uses and the target has a rate for, or should have."""
    target = priced.program.target
    bounds: list[Bound] = []
    bounds += [_compute(priced, kind, cost) for kind, cost in priced.cost.items()]
    shared = target.default_storage
    reads, writes = priced.compulsory
    distinct = sum((*reads.values(), *writes.values()), ZERO)
    if distinct.value != 0:
        least = Figure(
            distinct.value,
            distinct.precision if distinct.value is None else LOWER,
            distinct.reason,
        )
        bounds.append(_bandwidth(shared, least, target.bandwidth(shared), 1))
    moved = _executed(priced, shared)
    if moved.value != 0:
        for cache in target.caches.values():
            rate = target.bandwidth(cache.name)
            if cache.scope == "device" and rate is not None:
                bounds.append(_bandwidth(cache.name, moved, rate, 1))
    for storage in priced.storages:
        rate = target.bandwidth(storage)
        if storage != shared and rate is not None:
            bounds.append(_bandwidth(storage, _executed(priced, storage), rate, _active(priced)))
    known = [b for b in bounds if b.time is not None]
    known.sort(key=lambda b: (-(b.time or 0), b.resource))
    rest = sorted((b for b in bounds if b.time is None), key=lambda b: b.resource)
    kind = _largest(priced)
    operations = priced.cost[kind].logical if kind else ZERO
    return Roofline((*known, *rest), kind, operations, distinct)


def _largest(priced: Priced) -> Kind | None:
    """The kind with the most operations, None where they do not compare."""
    costs = {k: c.logical.value for k, c in priced.cost.items()}
    sizes = {k: n for k, n in costs.items() if isinstance(n, int)}
    if not sizes or len(sizes) != len(costs):
        return None
    return max(sizes, key=lambda k: (sizes[k], k))


def _executed(priced: Priced, storage: str) -> Figure:
    return priced.moved(storage, READ)[1] + priced.moved(storage, WRITE)[1]


def _active(priced: Priced) -> Fraction | int:
    """The part of the processors that the program's units can occupy."""
    held = priced.occupancy
    if held is None or not isinstance(held.processors.value, int):
        return 1
    return Fraction(min(held.units, held.processors.value), held.processors.value)


def rate_of(target: Target, kind: Kind) -> Fact | None:
    """Peak rate of one class of operations in one element type; None if none is stated.

    A contraction in a type without a matrix rate runs on the vector units.
    """
    what, dtype = kind
    if what == "special":
        return target.op_rate("special")
    if what == "int":
        return target.op_rate("integer")
    matrix = target.flops_rate("matrix", dtype) if what == "matrix" else None
    return matrix or target.flops_rate("vector", dtype)


def _compute(priced: Priced, kind: Kind, cost: Cost) -> Bound:
    name = f"{kind[0]}.{kind[1]}"
    rate = rate_of(priced.program.target, kind)
    load = _busiest_processor(priced, cost)
    if load is None:
        return Bound(name, cost.executed, "op", rate, None, _why(cost.executed))
    if rate is None or rate.value is None:
        return Bound(name, cost.executed, "op", rate, None, _lacks(name, rate))
    return Bound(name, cost.executed, "op", rate, load / Fraction(rate.value))


def _busiest_processor(priced: Priced, cost: Cost) -> Fraction | None:
    """Operations as if every processor did what the busiest one at least does."""
    total, held = cost.executed, priced.occupancy
    if not isinstance(total.value, int) or total.precision == UPPER:
        return None
    least = Fraction(total.value)
    each = cost.per_unit
    if held is None or not isinstance(held.processors.value, int):
        return least
    if held.level != priced.level or each.precision not in (EXACT, LOWER):
        return least
    if isinstance(each.value, int):
        rounds = 1
        if each.value * held.units == total.value:  # all alike: some processor gets the most
            rounds = -(-held.units // held.processors.value)
        least = max(least, Fraction(each.value * rounds * held.processors.value))
    return least


def _bandwidth(name: str, amount: Figure, rate: Fact | None, active: Fraction | int) -> Bound:
    if not isinstance(amount.value, int):
        return Bound(name, amount, "byte", rate, None, _why(amount))
    if rate is None or rate.value is None:
        return Bound(name, amount, "byte", rate, None, _lacks(name, rate))
    time = Fraction(amount.value) / Fraction(rate.value) / active
    return Bound(name, amount, "byte", rate, time)


def _why(amount: Figure) -> str:
    return amount.reason or "the amount depends on open extents; bind them with --dim"


def _lacks(name: str, rate: Fact | None) -> str:
    if rate is None:
        return f"the target states no rate for {name}"
    return f"{rate.path} is unavailable: {rate.unavailable}"
