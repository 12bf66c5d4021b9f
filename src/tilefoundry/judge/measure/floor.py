"""The physical floor: the least time that the target's facts allow.

Bytes are those that no cache can avoid, operations those of the function's meaning. Cold
data comes from the farthest memory; warm data from the smallest caches that can hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge.wire import Malformed
from tilefoundry.targets import Fact, Target, load_target

DATA = ("cold", "warm")
ROOM = 0.9
"""Part of the floor from which a time is believed: facts that were measured have a spread."""


@dataclass(frozen=True)
class Work:
    """Distinct bytes read and written (None: not decided), operations by class and dtype."""

    read: int | None
    written: int | None
    operations: Mapping[tuple[str, str], int]
    why: str = ""


def floors_of(
    module: Any, func: str, dims: Mapping[str, int], target: str, threads: int
) -> dict[str, Any]:
    """The floors of a function on cold and warm data, as a record; ``target`` stands in for the
    module's own, ``threads`` 0 for all processors. Refuses a ``target`` that is not known.

    Facts may be from hardware that somebody added, whose schema is code: this is for a process
    that may harm nothing.
    """
    stated = load_target(target) if target else None
    if stated is None and module.target is None:
        return _record("", dict.fromkeys(DATA, Floor((), (f"the target of {module.name}",))))
    known = stated or module.target.load(module.span)
    try:
        work = _work(module, func, dims, known)
    except Refusal as refusal:
        work = Work(None, None, {}, "; ".join(d.says for d in refusal.diags))
    threads = threads or int(known.processor.count.value or 1)
    return _record(known.id, {d: floor(work, known, threads, d == "cold") for d in DATA})


def _record(target: str, floors: Mapping[str, Floor]) -> dict[str, Any]:
    return {"target": target, "floors": {data: found.told() for data, found in floors.items()}}


def _work(module: Any, func: str, dims: Mapping[str, int], stated: Target) -> Work:
    from tilefoundry.analyze.function import price
    from tilefoundry.lang.parse import module_context

    known = stated if module.target is None else module.target.load(module.span)
    level = known.processor.level
    priced = price(module, module.funcs[func], known, module_context(module), dict(dims), level)
    reads, writes = priced.compulsory
    costs = {k: c.logical.value for k, c in priced.cost.items()}
    return Work(
        _whole([f.value for f in reads.values()]),
        _whole([f.value for f in writes.values()]),
        {k: n for k, n in costs.items() if isinstance(n, int)},
    )


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

    def told(self) -> dict[str, Any]:
        """What another process is told of it; :meth:`read` reads it."""
        return {"bounds": [list(astuple(b)) for b in self.bounds], "lacks": list(self.lacks)}

    @classmethod
    def read(cls, record: Any) -> Floor:
        try:
            bounds = [
                Bound(str(resource), int(amount), str(unit), float(rate), str(origin))
                for resource, amount, unit, rate, origin in record["bounds"]
            ]
            lacks = tuple(map(str, record["lacks"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise Malformed("a floor of no known form") from None
        if any(b.amount < 0 or not 0 < b.rate < float("inf") for b in bounds):
            raise Malformed("a floor of no known size")
        return cls(tuple(sorted(bounds, key=lambda b: -b.time)), lacks)

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
