"""The physical floor: the least time that the target's facts allow.

Bytes are those that no cache can avoid, operations those of the function's meaning. Cold
data comes from the farthest memory; warm data from the smallest caches that can hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.targets import Fact, Target, load_target

ROOM = 0.9
"""Part of the floor from which a time is believed: facts that were measured have a spread."""


@dataclass(frozen=True)
class Work:
    """Distinct bytes read and written (None: not decided), operations by class and dtype."""

    read: int | None
    written: int | None
    operations: Mapping[tuple[str, str], int]
    target: str
    why: str = ""

    @classmethod
    def told(cls, record: Mapping[str, Any]) -> Work:
        if "why" in record:
            return cls(None, None, {}, "", str(record["why"]))
        counts = {(str(k), str(d)): int(n) for k, d, n in record["operations"]}
        return cls(record["read"], record["written"], counts, str(record["target"]))


def work_of(module: Any, func: str, dims: Mapping[str, int], target: str) -> dict[str, Any]:
    """The work of a function as a record; ``target`` stands in for the module's own."""
    from tilefoundry.analyze.function import price
    from tilefoundry.lang.parse import module_context

    if module.target is None and not target:
        refuse("analysis-no-target", module.span, module=module.name)
    known = module.target.load(module.span) if module.target is not None else load_target(target)
    level = known.processor.level
    priced = price(module, module.funcs[func], known, module_context(module), dict(dims), level)
    reads, writes = priced.compulsory
    costs = {k: c.logical.value for k, c in priced.cost.items()}
    return {
        "read": _whole([f.value for f in reads.values()]),
        "written": _whole([f.value for f in writes.values()]),
        "operations": [[*k, n] for k, n in costs.items() if isinstance(n, int)],
        "target": known.id,
    }


def _whole(values: Sequence[Any]) -> int | None:
    return sum(values) if all(isinstance(v, int) for v in values) else None


@dataclass(frozen=True)
class Bound:
    """One resource: how much of it at which rate, so the least time in seconds."""

    resource: str
    amount: int
    unit: str
    rate: float
    origin: str

    @property
    def time(self) -> float:
        return self.amount / self.rate

    def record(self) -> dict[str, object]:
        return {"resource": self.resource, "amount": self.amount, "unit": self.unit,
                "rate": self.rate, "origin": self.origin, "time": self.time}  # fmt: skip


@dataclass(frozen=True)
class Floor:
    """The bounds on cold or warm calls, the largest first; ``lacks``: what is not known."""

    bounds: tuple[Bound, ...]
    lacks: tuple[str, ...]

    @property
    def time(self) -> float:
        """The least time in seconds, 0 where nothing is known."""
        return self.bounds[0].time if self.bounds else 0.0

    def hold(self, who: str, data: str, seconds: float) -> None:
        """Refuse a time that is below the floor."""
        if self.bounds and seconds < ROOM * self.time:
            first = self.bounds[0]
            refuse("measure-implausible", None, who=who, data=data, time=f"{seconds * 1e6:.3f}",
                   floor=f"{self.time * 1e6:.3f}", resource=first.resource,
                   amount=first.amount, unit=first.unit, rate=f"{first.rate:.4g}")  # fmt: skip


def floor(work: Work, target: Target, threads: int, cold: bool) -> Floor:
    """The floor on ``threads`` processors."""
    count = target.processor.count.value
    share = min(1.0, threads / count) if count else None
    bounds: list[Bound] = []
    lacks: list[str] = [work.why] if work.why else []
    for kind, amount in work.operations.items():
        rate = _rate(target, kind)
        name = ".".join(kind)
        if rate is None or rate.value is None or share is None:
            lacks.append(rate.path if rate is not None else f"a rate of {name}")
        else:
            bounds.append(Bound(name, amount, "op", _most(rate) * share, rate.origin))
    memory, lack = _memory(work, target, threads, cold)
    bounds += memory
    lacks += lack
    return Floor(tuple(sorted(bounds, key=lambda b: -b.time)), tuple(dict.fromkeys(lacks)))


def _rate(target: Target, kind: tuple[str, str]) -> Fact | None:
    from tilefoundry.analyze.roofline import rate_of

    return rate_of(target, kind)


def _most(fact: Fact) -> float:
    """The most that a fact can mean: the upper end of what was measured."""
    return float(fact.high or fact.value or 0)


def _memory(work: Work, target: Target, threads: int, cold: bool) -> tuple[list[Bound], list[str]]:
    far = target.default_storage
    rate = target.bandwidth(far)
    name = target.storages[far].memory
    if work.read is None or work.written is None:
        return [], [] if work.why else ["the bytes that are read and written"]
    if rate is None or rate.value is None:
        return [], [rate.path if rate is not None else f"memory.{name}.bandwidth"]
    if cold:  # what is read is nowhere else; what is written may stay in a cache
        return [Bound(name, work.read, "byte", _most(rate), rate.origin)], []
    kept = 0
    for cache in target.caches.values():
        size = cache.capacity.value
        if size is None:
            return [], [cache.capacity.path]
        kept += int(size) * (threads if cache.scope == "processor" else 1)
    beyond = work.read + work.written - kept
    if beyond <= 0:
        return [], []
    return [Bound(name, beyond, "byte", _most(rate), rate.origin)], []
