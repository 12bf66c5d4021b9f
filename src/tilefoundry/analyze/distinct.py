"""Distinct values of index expressions over units and steps.

What an inner loop adds to depends on the steps around it by few values, as the rows of a tile
or a direction: they are found first, and the inner loop is walked once for each of them
together, not once for each step around it. How many values a sum of multiples takes is counted
without a walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian
from math import prod

from tilefoundry.analyze.figure import Undecidable
from tilefoundry.analyze.trips import LIMIT, Span3, count, function, visitor
from tilefoundry.ir.expr import Dim, Expr, Sym, bounds, substitute, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import Loop


def distinct(
    keys: Sequence[Dim], coords: Sequence[Coord], loops: Sequence[tuple[Loop, Span3]]
) -> set[tuple[int, ...]]:
    """The values that ``keys`` take together, over the extents of ``coords`` and the steps of
    ``loops``, outermost first, whose bounds may depend on either.

    Raises :class:`Undecidable` where one loop is walked more often than is reasonable.
    """
    if not loops:
        sizes = [c.axis.extent for c in coords if c.axis]
        _bounded(prod(sizes))
        run = function(coords, keys)
        return {run(*crd) for crd in cartesian(*map(range, sizes))}
    *outer, (loop, span) = loops
    parts = _Parts(loop.var)
    made = [parts.of(key) for key in keys]
    start, stop, step = (parts.of(end) for end in span)
    around = distinct(list(parts.given), coords, outer)
    _bounded(len(around) * max(1, min(bounds(count(*span))[1], LIMIT + 1)))
    run = visitor(list(parts.given.values()), (), [(loop, (start, stop, step))], made)
    seen: set[tuple[int, ...]] = set()
    for values in around:
        seen.update(run(*values)[0])
    return seen


def how_many(key: Dim, coords: Sequence[Coord], loops: Sequence[tuple[Loop, Span3]]) -> int | None:
    """The number of values of ``key``, as :func:`distinct` takes them, at no cost; None unless it
    is a sum of multiples of coordinates and of loop variables whose steps are as many wherever
    they start."""
    extents: dict[Sym, int] = {c: c.axis.extent for c in coords if c.axis}
    known: dict[Sym, Dim] = {}
    for loop, span in loops:
        start, stop, step = (substitute(end, known) for end in span)
        least, most = bounds(count(start, stop, step))
        if least != most or not isinstance(most, int):
            return None
        turn = Sym(f"turn{len(known)}", 0, max(0, most - 1))
        extents[turn] = most
        known[loop.var] = start + step * turn.expr()
    total = substitute(key, known)
    if not all(extents.values()):
        return 0
    terms: list[tuple[int, int]] = []
    for mono, coef in total.terms if isinstance(total, Expr) else ():
        factors = list(mono)
        if len(factors) > 1 or any(f not in extents for f in factors):
            return None
        terms += [(abs(coef), extents[f]) for f in factors if isinstance(f, Sym)]
    return _sums(terms)


def _sums(terms: Sequence[tuple[int, int]]) -> int | None:
    """How many sums there are of one of ``0, c, .. (n - 1) * c`` for each of ``terms``, (c, n).

    Smallest first, they are numbers of some digits: a term that is larger than all sums before it
    is a digit of its own, one that is a multiple of the last digit's unit and leaves no gap makes
    that digit longer; None where a term is neither.
    """
    before, unit, length, most = 1, 1, 1, 0
    for c, n in sorted(terms):
        if n == 1:
            continue
        if c > most:
            before, unit, length = before * length, c, n
        elif c % unit == 0 and c // unit <= length:
            length += c // unit * (n - 1)
        else:
            return None
        most += c * (n - 1)
    return before * length


def _bounded(points: float) -> None:
    if points > LIMIT:
        raise Undecidable(f"the tiles take {int(points)} evaluations, more than {LIMIT}")


class _Parts:
    """Expressions cut at one loop: by its variable, and by what is the same in all its steps."""

    def __init__(self, var: Sym) -> None:
        self.var = var
        self.given: dict[Dim, Sym] = {}
        """What is the same, each with the symbol that stands for it."""

    def of(self, x: Dim) -> Dim:
        """``x`` in the variable and symbols for the rest."""
        if not isinstance(x, Expr):
            return x
        total: Dim = 0
        rest: Dim = 0
        for mono, coef in x.terms:
            here = any(self.var in symbols(atom.expr()) for atom in mono)
            value: Dim = coef
            for atom in mono:
                value = value * (self._factor(atom.expr()) if here else atom.expr())
            if here:
                total = total + value
            else:
                rest = rest + value
        return total + self._known(rest)

    def _factor(self, atom: Expr) -> Dim:
        """One atom; where it holds the variable among others, these one by one."""
        inside = symbols(atom)
        if self.var not in inside:
            return self._known(atom)
        others = [s for s in inside if s is not self.var]
        return substitute(atom, {s: self._known(s.expr()) for s in others})

    def _known(self, x: Dim) -> Dim:
        if not isinstance(x, Expr):
            return x
        if x not in self.given:
            self.given[x] = Sym(f"given{len(self.given)}", *bounds(x))
        return self.given[x].expr()


__all__ = ["distinct", "how_many"]
