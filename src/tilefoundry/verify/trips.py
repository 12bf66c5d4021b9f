"""Which iterations of a loop have to be run.

Slots, parities and tests repeat with a period P of iterations. A loop of n trips behaves as
one of n' = n - q·P trips as long as n' is at least 2P: every slot then has been used, released
and used again on both parities. The iterations that are run keep their real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.ir.expr import Dim, Expr, Sym, symbols
from tilefoundry.tir.program import (
    Advance,
    Barrier,
    Buffer,
    Counter,
    For,
    Stmt,
    Sync,
    When,
    With,
    views,
    walk,
)
from tilefoundry.verify.numbers import Compiler, Env, Fn, Motion
from tilefoundry.verify.roles import Layout, control


@dataclass(frozen=True)
class Cut:
    """A loop's period and the tests in it whose truth changes but once."""

    period: int
    tests: tuple[Fn, ...]
    at: int
    """Place of the loop variable in the environment."""
    least: int
    """Trips that have to be run."""


def cuts(layout: Layout, values: Mapping[Sym, int], compiler: Compiler) -> dict[For, Cut]:
    """The loops that may be cut, with the coordinates of one block as known constants."""
    out: dict[For, Cut] = {}
    for stmt in layout.sites:
        if isinstance(stmt, For) and isinstance(stmt.step, int):
            cut = _cut(stmt, layout, values, compiler)
            if cut is not None:
                out[stmt] = cut
    return out


def _cut(loop: For, layout: Layout, values: Mapping[Sym, int], compiler: Compiler) -> Cut | None:
    assert isinstance(loop.step, int)
    inside = [s for s, _ in walk(loop.body)]
    deeper = {s.var for s in inside if isinstance(s, For)}
    carried = layout.carried
    counters: dict[Sym, int] = {}
    for stmt in inside:
        if isinstance(stmt, Advance):
            if not isinstance(stmt.by, int):
                return None
            counters[stmt.counter] = math.gcd(stmt.by, counters.get(stmt.counter, 0))
    moves = Motion({loop.var: loop.step}, values)
    counts = Motion(counters, values)
    period = 1
    tests: list[Fn] = []
    for stmt in inside:
        for x in _deciding(stmt, carried):
            if not isinstance(x, Expr):
                continue
            used = symbols(x)
            if loop.var in used:
                got = moves.of(x)
                if got is None:
                    return None
                if got[1] and isinstance(stmt, When) and not used & deeper:
                    tests.append(compiler.fn(x))
                elif got[1]:
                    return None
                period = math.lcm(period, got[0])
            if any(isinstance(s, Counter) for s in used):
                got = counts.of(x)
                if got is None or got[1]:
                    return None
                period = math.lcm(period, got[0])
    period *= _phases(loop.body, layout)
    inner = any(isinstance(s, For) for s in inside)
    least = period + (2 if inner else max(period // 2, 1) + 1)
    return Cut(period, tuple(tests), compiler.at(loop.var), least)


def _deciding(stmt: Stmt, carried: frozenset[Buffer]) -> Sequence[Dim]:
    """Expressions that must repeat: control, and where memory is touched through which steps
    may hand over to later ones."""
    inner = [x for v in views(stmt) if v.buffer in carried for x in v.index]
    return (*control(stmt), *inner)


def _phases(body: Sequence[Stmt], layout: Layout) -> int:
    """How many iterations a phase takes, where one iteration does not complete it."""
    arrivals: dict[Barrier, int] = {}
    for stmt in _direct(body):
        if isinstance(stmt, Sync) and stmt.barrier is not None:
            every = {"arrive": max(stmt.every, 1), "async_arrive": 1}.get(stmt.kind)
            here = -(-len(layout.sites[stmt].threads) // every) if every else 0
            here = here * math.prod(a.extent for a in stmt.over) + (stmt.kind == "expect")
            arrivals[stmt.barrier] = arrivals.get(stmt.barrier, 0) + here
    factor = 1
    for barrier, here in arrivals.items():
        if here and here < barrier.count:
            factor = math.lcm(factor, barrier.count // math.gcd(here, barrier.count))
    return factor


def _direct(body: Sequence[Stmt]) -> list[Stmt]:
    out: list[Stmt] = []
    for stmt in body:
        out += _direct(stmt.body) if isinstance(stmt, (With, When)) else [stmt]
    return out


def iterations(values: range, cut: Cut | None, env: Env) -> Sequence[int]:
    """The values of the loop variable that are run."""
    n = len(values)
    if cut is None:
        return values
    keep = cut.least + (n - cut.least) % cut.period
    if keep >= n:
        return values
    head, resume = cut.period, n - (keep - cut.period)
    was = env[cut.at]
    truths: list[tuple[bool, ...]] = []
    for at in (head - 1 if head > 1 else head, head, resume - 1, resume):
        env[cut.at] = values[at]
        truths.append(tuple(test(env) > 0 for test in cut.tests))
    env[cut.at] = was
    if len(set(truths)) > 1:
        return values
    return [*values[:head], *values[resume:]]


__all__ = ["Cut", "cuts", "iterations"]
