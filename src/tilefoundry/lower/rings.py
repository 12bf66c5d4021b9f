"""The running count of a ring: how often the loops around a buffer have come by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tilefoundry.ir.expr import Dim, LoopVar, ceildiv
from tilefoundry.tir.program import Advance, Counter, For


class Nest(Protocol):
    """One loop around a buffer, of HIR or TIR."""

    @property
    def var(self) -> LoopVar: ...
    @property
    def start(self) -> Dim: ...
    @property
    def stop(self) -> Dim: ...
    @property
    def step(self) -> Dim: ...


def trips(loop: Nest) -> Dim:
    """How often the loop's body runs."""
    return ceildiv(loop.stop - loop.start, loop.step)


def ring_count(
    loops: Sequence[Nest], counters: Mapping[LoopVar, Counter] | None = None
) -> Dim | None:
    """The linear iteration count of ``loops``, outermost first: 0 in the first iteration of
    all. None where an inner loop's trips differ from time to time: then the innermost
    loop's counter counts, and is the answer if ``counters`` has it.
    """
    count: Dim = 0
    for n, loop in enumerate(loops):
        inner = trips(loop)
        if n and not isinstance(inner, int):
            known = (counters or {}).get(loops[-1].var)
            return None if known is None else known.expr()
        count = (count * inner if n else 0) + (loop.var.expr() - loop.start) // loop.step
    return count


def counter_of(loop: For) -> Counter | None:
    """The counter that a loop of TIR advances at the end of each iteration."""
    return next((s.counter for s in loop.body if isinstance(s, Advance)), None)
