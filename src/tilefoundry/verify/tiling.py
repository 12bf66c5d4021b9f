"""Proof, without enumeration, that the windows of one statement tile their buffer.

A start is read as a sum of *digits*: coordinates, loop variables, and floor divisions and
remainders of them, times constants. If along every axis the digits and the window itself
form a mixed radix (each weight is the product of what lies below), if all digits of a
variable that is taken apart are used once, and if every block axis is among them, then no
two executions write the same element; if the radices multiply to the extents, every element
is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, Mod, Sym, evaluate, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.tir.program import For, Stmt, View, When, With
from tilefoundry.verify.roles import UNIT, Layout, window_axes

Digit: TypeAlias = tuple[Sym, int, int | None]
"""(symbol, inner, extent): symbol // inner % extent; None: the rest."""


@dataclass
class Sources:
    """The symbols that may stand in a start, with their extents; ``axes`` are block axes that
    some symbol or test stands for."""

    extents: dict[Sym, int]
    steps: dict[Sym, int]
    axes: set[Axis]


def tiles(layout: Layout, around: tuple[Stmt, ...], view: View, partner: View | None,
          whole: bool) -> bool:  # fmt: skip
    """No two blocks write the same element through ``view``; with ``whole`` also: every
    element is written."""
    axes = window_axes(view)
    scope = next((s.mesh for s in reversed(around) if isinstance(s, With)), Mesh())
    outer = [a for a in scope.axes if a.level != UNIT]
    held = _held_axes(partner, view)
    sources = _sources(around, outer)
    if axes is None or sources is None or not layout.covers(scope):
        return False
    used: dict[Sym, list[Digit]] = {}
    for (start, axis), extent in zip(axes, view.buffer.shape, strict=True):
        size = 1 if axis is None else view.shape[axis]
        digits = _digits(start, sources)
        if digits is None:
            return False
        reached = size
        for weight, digit in sorted(digits, key=lambda d: d[0]):
            count = _count(digit, sources)
            if count is None or weight != reached:
                return False
            reached *= count
            used.setdefault(digit[0], []).append(digit)
        if reached > extent or (whole and reached != extent):
            return False
    for sym, digits in used.items():
        if not _complete(digits, sources.extents[sym]):
            return False
    seen = {s.axis for s in used if isinstance(s, Coord)} | held | sources.axes
    for sym in used:
        seen |= _behind(around, sym)
    return all(a in seen for a in outer if a.extent > 1)


def _held_axes(partner: View | None, view: View) -> set[Axis]:
    """Mesh axes over which the register side is split: their units hold different elements."""
    if partner is None or partner.buffer.layout is None or not partner.is_whole:
        return set()
    return {a for a in partner.buffer.layout.split_axes if view.shape == partner.shape}


def _sources(around: tuple[Stmt, ...], outer: list[Axis]) -> Sources | None:
    found = Sources({}, {}, set())
    for stmt in around:
        if isinstance(stmt, With):
            for a in stmt.mesh.axes:
                found.extents[Coord(a.name, 0, a.extent - 1, axis=a)] = a.extent
        elif isinstance(stmt, For):
            trips = _trips(stmt)
            if trips is None:
                return None
            found.extents[stmt.var], found.steps[stmt.var] = trips
        elif isinstance(stmt, When):
            axis = _single(stmt.test)
            if axis is None:
                return None
            found.axes.add(axis)
    return found


def _trips(loop: For) -> tuple[int, int] | None:
    """(how many values the variable takes over all units together, their distance)."""
    start, stop, step = loop.start, loop.stop, loop.step
    if not isinstance(stop, int) or not isinstance(step, int) or step <= 0:
        return None
    if isinstance(start, int):
        return (len(range(start, stop, step)), step) if start == 0 else None
    axis = _coordinate(start)
    # units start one apart and step over one another: together they take every value
    return (stop, 1) if axis is not None and axis.extent == step else None


def _behind(around: tuple[Stmt, ...], sym: Sym) -> set[Axis]:
    """The axis over which a loop's values are dealt."""
    for stmt in around:
        if isinstance(stmt, For) and stmt.var is sym:
            axis = _coordinate(stmt.start)
            return {axis} if axis is not None else set()
    return set()


def _coordinate(x: Dim) -> Axis | None:
    if isinstance(x, Expr) and len(x.terms) == 1:
        mono, coef = x.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], Coord):
            return mono[0].axis
    return None


def _single(test: Dim) -> Axis | None:
    """The axis of which exactly one coordinate passes the test."""
    used = list(symbols(test)) if isinstance(test, Expr) else []
    if len(used) != 1 or not isinstance(used[0], Coord) or used[0].axis is None:
        return None
    passing = sum(evaluate(test, {used[0]: n}) > 0 for n in range(used[0].axis.extent))
    return used[0].axis if passing == 1 else None


def _digits(start: Dim, sources: Sources) -> list[tuple[int, Digit]] | None:
    """The start as weights and digits, None if it is no such sum."""
    out: list[tuple[int, Digit]] = []
    for mono, coef in start.terms if isinstance(start, Expr) else (((), start),):
        if not mono:
            if coef:
                return None
            continue
        digit = _digit(mono[0], sources) if len(mono) == 1 and coef > 0 else None
        if digit is None:
            return None
        sym, inner, extent = digit
        step = sources.steps.get(sym, 1)
        if step != 1:
            # a loop in steps: its number is what has digits
            if inner == 1 and extent is None:
                coef *= step
            elif inner % step == 0:
                inner //= step
            else:
                return None
        if sources.extents[sym] > 1:
            out.append((coef, (sym, inner, extent)))
    return out


def _digit(atom: Atom, sources: Sources) -> Digit | None:
    if isinstance(atom, Sym):
        return (atom, 1, None) if atom in sources.extents else None
    if isinstance(atom, (FloorDiv, Mod)) and isinstance(atom.den, int):
        inside = atom.num
        if not isinstance(inside, Expr) or len(inside.terms) != 1:
            return None
        mono, coef = inside.terms[0]
        below = _digit(mono[0], sources) if coef == 1 and len(mono) == 1 else None
        if below is None or below[2] is not None:
            return None
        if isinstance(atom, Mod):
            return below[0], below[1], atom.den
        return below[0], below[1] * atom.den, None
    return None


def _count(digit: Digit, sources: Sources) -> int | None:
    sym, inner, extent = digit
    total = sources.extents[sym]
    if total % inner:
        return None
    rest = total // inner
    return rest if extent is None else extent if rest % extent == 0 else None


def _complete(digits: list[Digit], total: int) -> bool:
    """The digits of one symbol tell its value: each place is used exactly once."""
    reached = 1
    for _, inner, extent in sorted(digits, key=lambda d: d[1]):
        if inner != reached:
            return False
        reached *= total // inner if extent is None else extent
    return reached == total


__all__ = ["tiles"]
