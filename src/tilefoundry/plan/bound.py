"""A lower bound on a plan's time: the busiest resource of a step, or the chain of a step's
parts where nothing lets them overlap.

Only what the target's documents state is counted; what they do not state is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tilefoundry.analyze.figure import Binding, Undecidable
from tilefoundry.analyze.trips import trips
from tilefoundry.plan.compute import Compute
from tilefoundry.plan.site import Site
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.fact import Fact
from tilefoundry.targets.target import Target


@dataclass(frozen=True)
class Rates:
    """Of one processor: operations and bytes in a second, of ``caches`` its share of those
    that all processors use; ``lacks`` says what is not stated."""

    matrix: Fraction | None
    shared: Fraction | None
    caches: tuple[tuple[str, Fraction], ...]
    lacks: tuple[str, ...]


def _lack(name: str, fact: Fact | None) -> str:
    if fact is None:
        return f"{name}: no document states it"
    return f"{fact.path}: {fact.unavailable}"


def rates(target: Target, dtype: str, shared: str) -> Rates:
    """Peak rates of one processor for products of ``dtype``."""
    count = target.processor.count.value
    each = Fraction(1, int(count)) if count else None
    lacks: list[str] = []

    def of(name: str, fact: Fact | None) -> Fraction | None:
        if fact is None or fact.value is None or each is None:
            lacks.append(_lack(name, fact))
            return None
        return Fraction(fact.value) * each

    matrix = of(f"matrix rate of {dtype}", target.flops_rate("matrix", dtype))
    near = of(f"bandwidth of {shared}", target.bandwidth(shared))
    shares = [
        (c.name, of(f"bandwidth of {c.name}", target.bandwidth(c.name)))
        for c in target.caches.values()
        if c.scope == "device"
    ]
    known = tuple((name, share) for name, share in shares if share)
    return Rates(matrix, near, known, tuple(lacks))


def latency(target: Target, copies: Iterable[str]) -> Fraction | str:
    """The longest latency of ``copies`` in seconds, or why it is not known."""
    longest = Fraction(0)
    for copy in dict.fromkeys(copies):
        contract = contract_at(copy)
        stated = contract.latency if isinstance(contract, CopyInstr) else ""
        fact = target.stated(stated) if stated else None
        if fact is None or fact.value is None:
            return _lack(f"latency of T.{copy}", fact)
        longest = max(longest, Fraction(fact.value))
    return longest


@dataclass(frozen=True)
class Load:
    """How often: steps of the loop, executions of the loop by the busiest unit and (``all``) by
    all units together."""

    steps: int | None
    times: int | None
    all: int | None = None
    reason: str = ""


def amounts(site: Site, level: str) -> Load:
    """Trips of the loop and of what is around it, by units of ``level``."""
    bind = Binding({})
    try:
        steps = trips(site.nest[-1:], bind).most
        around = trips(site.nest, bind)
        every, whole = around.most, around.total(site.mesh.at(level))
    except Undecidable as why:
        return Load(None, None, reason=why.reason)
    if not isinstance(steps, int) or not isinstance(every, int) or not steps:
        return Load(None, None, reason=f"the loop runs {steps} times")
    return Load(steps, every // steps, whole // steps if isinstance(whole, int) else None)


def read_bytes(compute: Compute, sizes: tuple[int, int]) -> int:
    """Bytes of shared memory that one step's product reads: an operand from there once for
    every issue that takes it, a fragment once for every group that holds it."""
    m, n, _ = compute.fit.repeat
    rows, columns = compute.consumers.grid
    a = columns if compute.use.in_registers("A") else n
    b = rows if compute.use.in_registers("B") else m
    return sizes[0] * a + sizes[1] * b


@dataclass(frozen=True)
class Bound:
    """Seconds of one step of all units resident on a processor and of the whole loop (all its
    executions, all waves), and the limit of each; None where not even a bound is known."""

    step: Fraction | None
    limit: str
    total: Fraction | None


def bound(
    rates: Rates,
    load: Load,
    flops: int,
    filled: int,
    read: int,
    overlap: bool,
    ahead: int,
    delay: Fraction,
    active: int,
    waves: int,
    far_time: Fraction | None,
) -> Bound:
    """``flops``, ``filled`` and ``read`` bytes are of one step of one unit; ``overlap``: the
    fill of one step may go on under the product of another, ``ahead`` fills at once, each of
    which takes ``delay`` seconds at least; ``active`` units share the processor; ``far_time``
    is the least time of the device memory for all of the program."""
    parts: list[tuple[Fraction, str]] = []
    product = Fraction(0)
    if rates.matrix:
        product = flops / rates.matrix
        parts.append((active * product, "matrix"))
    fill = Fraction(0)
    if rates.shared:
        fill = filled / rates.shared
        product = max(product, read / rates.shared)
        parts.append((active * (filled + read) / rates.shared, "shared memory"))
    parts += [(active * filled / rate, name) for name, rate in rates.caches]
    if overlap and delay:
        parts.append((delay / ahead, "latency"))
    if not overlap:
        parts.append((max(fill, delay) + product, "fill, then product"))
    if not parts:
        return Bound(None, "unavailable", None)
    step, limit = max(parts, key=lambda p: p[0])
    total = None
    if load.steps is not None and load.times is not None:
        total = step * load.steps * load.times * waves
        if far_time is not None and far_time > total:
            total, limit = far_time, "device memory"
    return Bound(step, limit, total)
