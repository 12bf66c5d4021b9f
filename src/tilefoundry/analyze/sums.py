"""Amounts that change from step to step or from unit to unit: their sum over all trips, and
the largest of them.

The last step of a tiled loop may be shorter (``min(1000 - j, 64)``); sizes may grow with a
loop. Such amounts are added up step by step; the extents of a tiled loop add up to the whole
axis, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import inf, prod

from tilefoundry.analyze.figure import EXACT, UPPER, Binding, Figure, Undecidable
from tilefoundry.analyze.trips import (
    LIMIT,
    Factor,
    Trips,
    adder,
    apart,
    coordinates,
    count,
    groups,
    trips,
    visitor,
)
from tilefoundry.diag import refuse
from tilefoundry.ir.expr import (
    Atom,
    Dim,
    Expr,
    LoopVar,
    OpenDim,
    Sym,
    bounds,
    maximum,
    minimum,
    product,
    substitute,
    symbols,
)
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import Loop

MOST_STEPS = 1 << 18
"""Steps that are compared for the largest amount; beyond, its bound stands for it."""


@dataclass(frozen=True)
class Sum:
    """An amount over all trips: each part is an amount of every trip times its trips."""

    parts: tuple[tuple[Dim, Trips], ...]
    precision: str = EXACT

    def total(self, units: Sequence[object]) -> Dim:
        """The sum over the units of ``units``."""
        out: Dim = 0
        for share, times in self.parts:
            out = out + share * times.total(units)  # type: ignore[arg-type]
        return out


def moves(amount: Dim, own: Iterable[Sym]) -> bool:
    """Whether ``amount`` depends on a loop variable of ``own`` or on a coordinate."""
    held = set(own)
    return any(s in held or isinstance(s, Coord) for s in symbols(amount))


def closure(bind: Binding, keys: Sequence[Dim], nest: Iterable[Loop]) -> set[Sym]:
    """Symbols that decide the values of ``keys``: their own and those of loop bounds."""
    owner = {loop.var: loop for loop in nest}
    out: set[Sym] = set()
    stack = [s for k in keys for s in symbols(k)]
    while stack:
        symbol = stack.pop()
        if symbol in out:
            continue
        out.add(symbol)
        if isinstance(symbol, LoopVar) and symbol in owner:
            loop = owner[symbol]
            for x in (loop.start, loop.stop, loop.step):
                stack += symbols(bind(x))
    return out


def summed(loops: Sequence[Loop], bind: Binding, amount: Dim) -> Sum:
    """``amount`` (open extents bound) at every trip of ``loops``.

    Raises :class:`Undecidable` where it is not known; an upper bound where open extents
    allow no more.
    """
    own = {x.var for x in loops}
    if not isinstance(amount, Expr) or not moves(amount, own):
        return Sum(((amount, trips(loops, bind)),))
    parts: list[tuple[Dim, Trips]] = []
    precision = EXACT
    for mono, coef in amount.terms:
        moving = [a for a in mono if moves(a.expr(), own)]
        still = coef * product(a.expr() for a in mono if a not in moving)
        if not moving:
            parts.append((still, trips(loops, bind)))
            continue
        made = _weighted(loops, bind, moving)
        if made is None:
            if coef < 0:
                raise _unknown(bind, amount, loops)
            share, times = _most(loops, bind, moving)
            parts.append((still * share, times))
            precision = UPPER
        else:
            parts.append((still, made))
    even = [p for p in parts if not p[1].factors]
    whole: Dim = 0
    for share, times in even:
        whole = whole + share * times.every
    rest = [p for p in parts if p[1].factors]
    return Sum((*rest, (1, Trips(whole))) if even else tuple(rest), precision)


def _weighted(loops: Sequence[Loop], bind: Binding, factors: Sequence[Atom]) -> Trips | None:
    """The trips of ``loops``, each counted as often as the product of ``factors`` says; None
    where open extents keep that from being told."""
    spans = [(bind(x.start), bind(x.stop), bind(x.step)) for x in loops]
    tiled = [_tiled(loops, spans, a) for a in factors]
    if None not in tiled and len(set(tiled)) == len(tiled):
        rest = trips([x for i, x in enumerate(loops) if i not in tiled], bind)
        ends = product(maximum(0, spans[i][1]) for i in tiled if i is not None)
        return Trips(rest.every * ends, rest.factors)
    amount = product(a.expr() for a in factors)
    held = symbols(amount)
    near = [g for g in groups(loops, spans) if any(loops[i].var in held for i in g)]
    inside = sorted(i for g in near for i in g)
    dims = [amount, *(x for i in inside for x in spans[i])]
    mine = {loops[i].var for i in inside}
    if any(s not in mine and not isinstance(s, Coord) for x in dims for s in symbols(x)):
        return None
    rest = trips([x for i, x in enumerate(loops) if i not in inside], bind)
    at = coordinates(dims)
    axes = tuple(c.axis for c in at if c.axis)
    sizes = [a.extent for a in axes]
    points = prod(sizes) * _steps([spans[i] for i in inside])
    if points > LIMIT:
        refuse(
            "analysis-too-large",
            next((x.span for x in loops), None),
            what="adding up what steps of different sizes do",
            points=points,
            limit=LIMIT,
        )
    run = adder(at, [loops[i] for i in inside], [spans[i] for i in inside], amount)
    table = {crd: run(*crd) for crd in cartesian(*map(range, sizes))}
    if not axes:
        return Trips(rest.every * table[()], rest.factors)
    return Trips(rest.every, tuple(apart([*rest.factors, Factor(axes, table)])))


def _tiled(loops: Sequence[Loop], spans: Sequence[tuple[Dim, Dim, Dim]], atom: Atom) -> int | None:
    """The loop whose step's extent ``atom`` is: it runs over all of an axis in tiles, and its
    bounds and those of the others have nothing to do with each other."""
    for i, (loop, (start, stop, step)) in enumerate(zip(loops, spans, strict=True)):
        if start != 0 or any(isinstance(s, (LoopVar, Coord)) for s in symbols(step)):
            continue
        if any(loop.var in symbols(x) for span in spans for x in span):
            continue
        own = any(s in {x.var for x in loops} or isinstance(s, Coord) for s in symbols(stop))
        if not own and atom.expr() == minimum(step, stop - loop.var.expr()):
            return i
    return None


def _most(loops: Sequence[Loop], bind: Binding, factors: Sequence[Atom]) -> tuple[Dim, Trips]:
    """What every trip amounts to at most, and the trips: the extent of a loop's tile adds up
    to its axis once, and is a whole tile wherever else it occurs."""
    spans = [(bind(x.start), bind(x.stop), bind(x.step)) for x in loops]
    once: dict[int, Atom] = {}
    share: Dim = 1
    for a in factors:
        tiled = _tiled(loops, spans, a)
        if tiled is not None and tiled not in once:
            once[tiled] = a
            continue
        lo, hi = bounds(a.expr())
        if hi == inf or (lo < 0 and tiled is None):
            raise _unknown(bind, a.expr(), loops)
        share = share * int(hi)
    times = _weighted(loops, bind, list(once.values())) if once else trips(loops, bind)
    assert times is not None
    return share, times


def _unknown(bind: Binding, amount: Dim, loops: Iterable[Loop]) -> Undecidable:
    held = closure(bind, [amount], loops)
    steps = " and ".join(sorted({s.name for s in held if isinstance(s, (LoopVar, Coord))}))
    names = " ".join(sorted({s.name for s in held if isinstance(s, OpenDim)}))
    bound = f" and on {names}; bind it with --dim" if names else ""
    return Undecidable(f"an amount depends on {steps}{bound}")


def _steps(spans: Iterable[tuple[Dim, Dim, Dim]]) -> int:
    points = 1
    for span in spans:
        points *= max(1, int(min(bounds(count(*span))[1], LIMIT + 1)))
    return points


@dataclass(frozen=True)
class Largest:
    """The largest of an amount over all steps and units, and a step at which it is reached
    (by symbol; empty where only a bound is known)."""

    figure: Figure
    at: Mapping[Sym, Dim]


def largest(loops: Iterable[Loop], bind: Binding, amount: Dim) -> Largest:
    """The largest of ``amount`` over the units and the steps of those of ``loops`` (outermost
    first) that decide it; whether loops inside of these make a step then is not asked."""
    loops = list(loops)
    if not isinstance(amount, Expr) or not moves(amount, (x.var for x in loops)):
        return Largest(Figure(amount), {})
    held = closure(bind, [amount], loops)
    near = [x for x in loops if x.var in held]
    spans = [(bind(x.start), bind(x.stop), bind(x.step)) for x in near]
    first = _first(near, spans, amount)
    if first:
        return Largest(Figure(substitute(amount, first)), first)
    at = coordinates([s.expr() for s in held if isinstance(s, Coord)])
    sizes = [c.axis.extent for c in at if c.axis]
    closed = all(isinstance(s, Coord) or s in {x.var for x in near} for s in held)
    if closed and prod(sizes) * _steps(spans) <= MOST_STEPS:
        run = visitor(at, (), list(zip(near, spans, strict=True)), [amount, *_vars(near)])
        best: tuple[int, ...] = ()
        place: tuple[int, ...] = ()
        for crd in cartesian(*map(range, sizes)):
            found = max(run(*crd)[0], default=(), key=lambda row: row[0])
            if found and (not best or found[0] > best[0]):
                best, place = found, crd
        if not best:  # no step is ever made
            return Largest(Figure(0), dict.fromkeys((*at, *(x.var for x in near)), 0))
        names = (*at, *(x.var for x in near))
        env: dict[Sym, Dim] = dict(zip(names, (*place, *best[1:]), strict=True))
        return Largest(Figure(best[0]), env)
    hi = bounds(amount)[1]
    if hi == inf:
        raise _unknown(bind, amount, loops)
    return Largest(Figure(int(hi), UPPER), {})


def _vars(loops: Iterable[Loop]) -> list[Dim]:
    return [x.var.expr() for x in loops]


def _first(
    loops: Sequence[Loop], spans: Sequence[tuple[Dim, Dim, Dim]], amount: Expr
) -> dict[Sym, Dim] | None:
    """The first step of each loop, if ``amount`` only grows with the extents of tiled loops:
    the first tile is the largest."""
    own = [x.var for x in loops]
    for mono, coef in amount.terms:
        moving = [a for a in mono if moves(a.expr(), own)]
        still = [bounds(a.expr())[0] >= 0 for a in mono if a not in moving]
        if moving and (coef < 0 or not all(still)):
            return None
        if any(_tiled(loops, spans, a) is None for a in moving):
            return None
    return dict.fromkeys(own, 0)
