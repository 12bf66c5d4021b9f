"""Proof, without enumeration, of which block touches an element through a view.

An index is read as a sum of *digits*: coordinates, loop variables, variables of the view, and
floor divisions and remainders of them, times constants. If along every axis the digits form a
mixed radix (each weight is the product of what lies below), if all digits of a variable that
is taken apart are used once, and if every block axis is among them, then an element tells the
block that touches it; if the radices multiply to the extents, every element is touched. Digits
vary one without another: no axis of units stands behind two symbols of a view's indices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from math import prod
from typing import TypeAlias

from tilefoundry.ir.expr import (
    Atom,
    Dim,
    Expr,
    FloorDiv,
    IterVar,
    Mod,
    Sym,
    evaluate,
    substitute,
    symbols,
)
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.tir.program import For, Stmt, View, When, With
from tilefoundry.verify.clamps import loops_of_clamps
from tilefoundry.verify.roles import Layout, inner_levels

Indices: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""A constant and (weight, count) of digits, least first: the indices that they add up to."""
Digit: TypeAlias = tuple[Sym, int, int | None]
"""(symbol, inner, extent): symbol // inner % extent; None: the rest."""


@dataclass
class Sources:
    """The symbols that may stand in an index, with their extents; ``passing`` are axes of
    which one coordinate, given here, passes a test; ``loops`` says what a variable is whose
    loop begins at such symbols: the sum of its start and its number of steps."""

    extents: dict[Sym, int]
    steps: dict[Sym, int]
    passing: dict[Axis, int]
    loops: dict[Sym, Dim] = field(default_factory=lambda: dict[Sym, Dim]())


@dataclass(frozen=True)
class Tiling:
    """``owner``: how an element tells its block; equal of two views, they touch each element
    in the same block. ``elements``: along each axis the constant and the (weight, count) of
    the digits that make up the touched indices; ``count``: how many elements that are, None if
    it cannot be told."""

    owner: frozenset[tuple[object, ...]]
    elements: tuple[Indices, ...]
    count: int | None


def together(tilings: Iterable[Tiling]) -> tuple[int, bool]:
    """How many elements are touched through some of the views at least; whether it is no more."""
    found: dict[tuple[Indices, ...], int] = {}
    known = True
    for t in tilings:
        known = known and t.count is not None
        found[t.elements] = max(found.get(t.elements, 0), t.count or 0)
    parted = all(
        any(_apart(x, y) for x, y in zip(a, b, strict=True)) for a, b in combinations(found, 2)
    )
    if not parted:
        return max(found.values(), default=0), False
    return sum(found.values()), known


def _apart(a: Indices, b: Indices) -> bool:
    """No index is in both; shown where one ends before the other, or they differ by the constant
    alone."""
    if min(_last(a), _last(b)) < max(a[0], b[0]):
        return True
    return a[1] == b[1] and not _reaches(b[0] - a[0], a[1])


def _last(indices: Indices) -> int:
    return indices[0] + sum(weight * (count - 1) for weight, count in indices[1])


def _reaches(far: int, counts: tuple[tuple[int, int], ...]) -> bool:
    """Two indices with these digits may be ``far`` from each other."""
    if not counts:
        return far == 0
    *rest, (weight, count) = counts
    return any(
        abs(steps) < count and _reaches(far - steps * weight, tuple(rest))
        for steps in (far // weight, far // weight + 1)
    )


def tiles(layout: Layout, around: tuple[Stmt, ...], view: View,
          partner: View | None) -> Tiling | None:  # fmt: skip
    """How the blocks share the buffer through ``view``, None if that cannot be shown."""
    scope = next((s.mesh for s in reversed(around) if isinstance(s, With)), Mesh())
    inside = inner_levels(layout.func)
    outer = [a for a in scope.axes if a.level not in inside]
    sources = _sources(around, outer)
    if sources is None or not layout.covers(scope):
        return None
    own = dict(zip(view.vars, view.shape, strict=True))
    sources.extents |= own
    used: dict[Sym, list[Digit]] = {}
    owner: set[tuple[object, ...]] = {("test", *x) for x in sources.passing.items()}
    elements: list[Indices] = []
    whole, told = 0 if 0 in sources.extents.values() else 1, True
    index = _unclamped([substitute(x, sources.loops) for x in view.index], around, sources)
    for n, (x, extent) in enumerate(zip(index, view.buffer.shape, strict=True)):
        found = _radix(x, sources, gaps=True)
        if found is None:
            return None
        base, digits, _ = found
        counts = tuple((weight, _count(digit, sources) or 1) for weight, digit in digits)
        elements.append((base, counts))
        whole *= _below(extent - base, counts) - _below(-base, counts)
        for at, (weight, digit) in enumerate(digits):
            used.setdefault(digit[0], []).append(digit)
            axis, dealt = _behind(around, digit[0])
            told = told and axis not in sources.passing
            if axis in outer:
                # a start below the digit does not change it
                low = base + sum(w * (c - 1) for w, c in counts[:at])
                shift = 0 if base >= 0 and low < weight else base
                after = counts[at + 1][0] if at + 1 < len(counts) else weight * counts[at][1]
                owner.add((n, shift, weight, after, axis, dealt, *digit[1:]))
    if not all(_complete(digits, sources.extents[sym]) for sym, digits in used.items()):
        return None
    held: frozenset[Axis] = frozenset()
    if all(v in used or extent == 1 for v, extent in own.items()):
        held = _held_axes(partner, view)
    if any(a.extent > 1 for a in held & frozenset(outer)):
        assert partner is not None
        plain = (_plain(v, sources) for v in (view, partner))
        names = (view.buffer.shape, partner.buffer.shape, partner.buffer.layout, *plain)
        owner.add(("held", *names))
    behind = [a for sym in used if (a := _behind(around, sym)[0]) is not None]
    if len(set(behind)) < len(behind) or not set(scope.axes).issuperset(behind):
        return None
    seen = {*behind, *held, *sources.passing}
    if not seen.issuperset(a for a in outer if a.extent > 1):
        return None
    told = told and held.isdisjoint(behind) and not _idle(around, used, sources)
    return Tiling(frozenset(owner), tuple(elements), whole if told else None)


def _idle(around: tuple[Stmt, ...], used: Iterable[Sym], sources: Sources) -> bool:
    """A loop that is dealt over units, and does not move the view, leaves some without a step."""
    for stmt in around:
        if isinstance(stmt, For) and stmt.var not in used:
            axis = _coordinate(stmt.start)[0]
            if axis is not None and sources.extents.get(stmt.var, axis.extent) < axis.extent:
                return True
    return False


def _below(limit: int, counts: tuple[tuple[int, int], ...]) -> int:
    """How many sums of digits of these (weight, count), least first, are less than ``limit``;
    each weighs more than all below it together."""
    if limit <= 0:
        return 0
    if not counts:
        return 1
    *rest, (weight, count) = counts
    lower = tuple(rest)
    full = min(limit // weight, count)  # values of the last with which all below is less
    part = _below(limit - full * weight, lower) if full < count else 0
    return full * prod(c for _, c in lower) + part


def _unclamped(index: list[Dim], around: tuple[Stmt, ...], sources: Sources) -> tuple[Dim, ...]:
    """The index with loops of their own for what the variables of loops that every unit runs in
    full are clamped to."""
    loops = {s: (0, step, sources.extents[s]) for s, step in sources.steps.items()
             if _behind(around, s)[0] is None}  # fmt: skip
    found, made = loops_of_clamps(index, loops)
    for sym, (_, apart, count) in made.items():
        sources.extents[sym], sources.steps[sym] = count, apart
    return found


def box_of(view: View) -> tuple[tuple[Dim, int], ...] | None:
    """Per buffer axis (start, extent) if the view touches exactly a box, each element once."""
    sources = Sources(dict(zip(view.vars, view.shape, strict=True)), {}, {})
    zero: dict[Sym, Dim] = dict.fromkeys(view.vars, 0)
    used: dict[Sym, list[Digit]] = {}
    out: list[tuple[Dim, int]] = []
    for x in view.index:
        start = substitute(x, zero)
        found = _radix(x - start, sources)
        if found is None:
            return None
        for _, digit in found[1]:
            used.setdefault(digit[0], []).append(digit)
        out.append((start, found[2]))
    whole = all(_complete(d, sources.extents[sym]) for sym, d in used.items())
    return tuple(out) if whole else None


def _radix(x: Dim, sources: Sources,
           gaps: bool = False) -> tuple[int, list[tuple[int, Digit]], int] | None:  # fmt: skip
    """(constant, digits with their weights, least first, product of the radices) of an index,
    None if its digits form no mixed radix. With ``gaps`` a digit may weigh any multiple of
    the one below it that is more than all values below."""
    found = _digits(x, sources)
    if found is None:
        return None
    base, digits = found
    digits.sort(key=lambda d: d[0])
    reached, top, last = 1, 0, 1
    for weight, digit in digits:
        count = _count(digit, sources)
        if count is None or weight <= top or weight % last or (weight != reached and not gaps):
            return None
        last = weight
        reached *= count
        top += weight * (count - 1)
    return base, digits, reached


def _plain(view: View, sources: Sources) -> tuple[tuple[int, ...], tuple[Dim, ...]]:
    """A view up to the names of its variables and of the loops, of the same trips, around it."""
    names: dict[Sym, Dim] = {v: _name("v", n, e, 1).expr() for n, (v, e)
                             in enumerate(zip(view.vars, view.shape, strict=True))}  # fmt: skip
    index = [substitute(x, sources.loops) for x in view.index]
    for x in index:
        loops = (s for s in symbols(x) if s in sources.steps and s not in names)
        for sym in sorted(loops, key=lambda s: s.name):
            at = len(names), sources.extents[sym], sources.steps[sym]
            names[sym] = _name("l", *at).expr()
    return view.shape, tuple(substitute(x, names) for x in index)


@cache
def _name(kind: str, number: int, extent: int, step: int) -> IterVar:
    return IterVar(f"{kind}{number}", 0, (extent - 1) * step, step)


def _held_axes(partner: View | None, view: View) -> frozenset[Axis]:
    """Mesh axes over which the register side is split: their units hold different elements."""
    if partner is None or view.shape != partner.shape:
        return frozenset()
    return frozenset(part.axis for part in held_parts(partner))


@dataclass(frozen=True)
class Part:
    """A unit at coordinate c of ``axis`` holds those elements of a view for which index
    ``dim`` // ``inner`` % ``extent`` is c // ``below`` % ``extent``."""

    dim: int
    inner: int
    extent: int
    axis: Axis
    below: int


def held_parts(view: View) -> tuple[Part, ...]:
    """Who holds which elements of a view of all of a buffer in registers, in any shape and
    order of axes; empty where everybody does or that cannot be told."""
    buffer = view.buffer
    if buffer.layout is None or prod(view.shape) != prod(buffer.shape):
        return ()
    sources = Sources(dict(zip(view.vars, view.shape, strict=True)), {}, {})
    number = {v: n for n, v in enumerate(view.vars)}
    indices = [_radix(x, sources) for x in view.index]
    out: list[Part] = []
    for held in buffer.layout.digits(buffer.shape):
        found = indices[held.dim]
        if found is None or found[0] or not isinstance(held.inner, int):
            return ()
        start, reached = held.inner, 1
        stop = start * held.axis.extent
        for weight, (sym, inner, extent) in found[1]:
            count = _count((sym, inner, extent), sources)
            assert count is not None
            low, high = max(weight, start), min(weight * count, stop)
            if low >= high:
                continue
            if low % weight or high % low or (weight * count) % high:
                return ()
            above = Part(number[sym], inner * (low // weight), high // low, held.axis, low // start)  # type: ignore[index]
            out.append(above)
            reached *= above.extent
        if reached != held.axis.extent:
            return ()
    return tuple(out)


def _sources(around: tuple[Stmt, ...], outer: list[Axis]) -> Sources | None:
    found = Sources({}, {}, {})
    for stmt in around:
        if isinstance(stmt, With):
            for a in stmt.mesh.axes:
                found.extents[Coord(a.name, 0, a.extent - 1, axis=a)] = a.extent
        elif isinstance(stmt, For):
            trips = _trips(stmt)
            if trips is not None:
                found.extents[stmt.var], found.steps[stmt.var] = trips
                continue
            length = stmt.stop - stmt.start
            if not isinstance(length, int) or not isinstance(stmt.step, int) or stmt.step <= 0:
                return None
            count = len(range(0, length, stmt.step))
            number = IterVar(f"{stmt.var.name}'", 0, max(count - 1, 0))
            found.extents[number], found.steps[number] = count, 1
            found.loops[stmt.var] = substitute(stmt.start, found.loops) + number.expr() * stmt.step
        elif isinstance(stmt, When):
            single = _single(stmt.test)
            if single is None or found.passing.setdefault(*single) != single[1]:
                return None
    return found


def _trips(loop: For) -> tuple[int, int] | None:
    """(how many values the variable takes over all units together, their distance)."""
    start, stop, step = loop.start, loop.stop, loop.step
    if not isinstance(stop, int) or not isinstance(step, int) or step <= 0:
        return None
    if isinstance(start, int):
        return (len(range(start, stop, step)), step) if start == 0 else None
    # units start a step apart and step over one another: together they take every step
    axis, apart = _coordinate(start)
    return (max(0, -(-stop // apart)), apart) if axis and axis.extent * apart == step else None


def _behind(around: tuple[Stmt, ...], sym: Sym) -> tuple[Axis | None, bool]:
    """The axis whose coordinate a symbol is, or over which a loop's values are dealt; whether
    it is a loop."""
    if isinstance(sym, Coord):
        return sym.axis, False
    for stmt in around:
        if isinstance(stmt, For) and stmt.var is sym:
            return _coordinate(stmt.start)[0], True
    return None, False


def _coordinate(x: Dim) -> tuple[Axis | None, int]:
    """The axis and how far apart its units are, where ``x`` is a multiple of a coordinate."""
    if isinstance(x, Expr) and len(x.terms) == 1:
        mono, coef = x.terms[0]
        if coef > 0 and len(mono) == 1 and isinstance(mono[0], Coord):
            return mono[0].axis, coef
    return None, 0


def _single(test: Dim) -> tuple[Axis, int] | None:
    """The axis of which exactly one coordinate passes the test, and that coordinate."""
    used = list(symbols(test)) if isinstance(test, Expr) else []
    if len(used) != 1 or not isinstance(used[0], Coord) or used[0].axis is None:
        return None
    axis = used[0].axis
    passing = [n for n in range(axis.extent) if evaluate(test, {used[0]: n}) > 0]
    return (axis, passing[0]) if len(passing) == 1 else None


def _digits(x: Dim, sources: Sources) -> tuple[int, list[tuple[int, Digit]]] | None:
    """The index as a constant, and weights with digits; None if it is no such sum."""
    out: list[tuple[int, Digit]] = []
    base = 0
    for mono, coef in x.terms if isinstance(x, Expr) else (((), x),):
        if not mono:
            base += coef
            continue
        found = _places(mono[0], sources) if len(mono) == 1 and coef > 0 else None
        if found is None:
            return None
        out += [(coef * weight, digit) for weight, digit in found]
    return base, out


def _places(atom: Atom, sources: Sources) -> list[tuple[int, Digit]] | None:
    """Weights and digits of one symbol, quotient or remainder. Of a loop in steps its number
    has digits; a division cuts the digits of what is divided at its divisor."""
    if isinstance(atom, Sym):
        if sources.extents.get(atom, 0) > 1:
            return [(sources.steps.get(atom, 1), (atom, 1, None))]
        return [] if atom in sources.extents else None
    if not isinstance(atom, (FloorDiv, Mod)) or not isinstance(atom.den, int):
        return None
    inside = _digits(atom.num, sources)
    if inside is None or inside[0]:
        return None
    cut, reached = atom.den, 1
    out: list[tuple[int, Digit]] = []
    for weight, digit in sorted(inside[1], key=lambda d: d[0]):
        count = _count(digit, sources)
        if count is None or weight < reached:
            return None
        reached = weight * count
        sym, inner, extent = digit
        if weight < cut < reached:
            if cut % weight or reached % cut:
                return None
            low, high = cut // weight, reached // cut
            upper = sym, inner * low, None if extent is None else high
            digit = (sym, inner, low) if isinstance(atom, Mod) else upper
            out.append((weight if isinstance(atom, Mod) else 1, digit))
        elif weight >= cut:
            if weight % cut:
                return None
            if isinstance(atom, FloorDiv):
                out.append((weight // cut, digit))
        elif isinstance(atom, Mod):
            out.append((weight, digit))
    return out


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


__all__ = ["Part", "Tiling", "box_of", "held_parts", "tiles", "together"]
