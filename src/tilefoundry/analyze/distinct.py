"""Distinct values of index expressions over units and steps.

What an inner loop adds to depends on the steps around it by few values, as the rows of a tile
or a direction: they are found first, and the inner loop is walked once for each of them
together, not once for each step around it.
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


__all__ = ["distinct"]
