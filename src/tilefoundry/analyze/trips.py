"""How often each unit executes a statement: exact sums over coordinate-dependent loops.

Bounds may depend on mesh coordinates and on outer loops (triangular). Loops that do not
depend on each other are counted apart; those that do are enumerated, to a stated bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as cartesian
from math import prod
from typing import Any

from tilefoundry.analyze.figure import Binding, Undecidable, open_names
from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import (
    Dim,
    LoopVar,
    Sym,
    bounds,
    ceildiv,
    maximum,
    render,
    symbols,
)
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Loop

LIMIT = 1 << 22
"""Points that one enumeration may visit."""

Table = Mapping[tuple[int, ...], int]
Span3 = tuple[Dim, Dim, Dim]
"""Start, stop and step of a loop."""


@dataclass(frozen=True)
class Factor:
    """Trips that depend on the coordinates of ``axes``; ``closed`` holds (sum over all
    units, most of one unit) where extents are open and only the sum is known."""

    axes: tuple[Axis, ...]
    table: Table = field(default_factory=dict)
    closed: tuple[Dim, Dim] | None = None


@dataclass(frozen=True)
class Trips:
    """Executions per unit: ``every`` unit's count times what the ``factors`` say."""

    every: Dim = 1
    factors: tuple[Factor, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Mesh axes whose coordinates change the count."""
        return tuple(dict.fromkeys(a for f in self.factors for a in f.axes))

    def total(self, units: Sequence[Axis]) -> Dim:
        """Executions summed over the units of ``units`` (which hold all of ``axes``)."""
        rest = prod(a.extent for a in units if a not in self.axes)
        out: Dim = self.every * rest
        for f in self.factors:
            out = out * (f.closed[0] if f.closed else sum(f.table.values()))
        return out

    def at(self, place: Mapping[Axis, int]) -> Dim:
        """Executions of the unit at ``place``."""
        out = self.every
        for f in self.factors:
            if f.closed:
                return out * f.closed[1]
            out = out * f.table[tuple(place[a] for a in f.axes)]
        return out

    @property
    def most(self) -> Dim:
        """Executions of the busiest unit."""
        out = self.every
        for f in self.factors:
            out = out * (f.closed[1] if f.closed else max(f.table.values(), default=0))
        return out


ONCE = Trips()


def trips(loops: Sequence[Loop], bind: Binding) -> Trips:
    """How often the body of ``loops`` (outermost first) runs.

    Raises :class:`Undecidable` where it is not known; refuses (``analysis-too-large``)
    where telling would visit too many points.
    """
    spans = [(bind(x.start), bind(x.stop), bind(x.step)) for x in loops]
    every: Dim = 1
    factors: list[Factor] = []
    for group in groups(loops, spans):
        if len(group) == 1:
            made = _one(loops[group[0]], *spans[group[0]])
        else:
            made = _several([loops[i] for i in group], [spans[i] for i in group])
        if isinstance(made, Factor):
            factors.append(made)
        else:
            every = every * made
    return Trips(every, tuple(apart(factors)))


def groups(loops: Sequence[Loop], spans: Sequence[tuple[Dim, ...]]) -> list[list[int]]:
    """Loops that refer to each other's variables, in order of their first."""
    owner: dict[Sym, int] = {loop.var: i for i, loop in enumerate(loops)}
    home = list(range(len(loops)))
    for i, span in enumerate(spans):
        for var in (s for x in span for s in symbols(x) if s in owner):
            old, new = home[i], home[owner[var]]
            home = [new if h == old else h for h in home]
    return [[i for i, h in enumerate(home) if h == g] for g in dict.fromkeys(home)]


def count(start: Dim, stop: Dim, step: Dim) -> Dim:
    """Length of ``range(start, stop, step)``."""
    if bounds(step)[0] > 0:
        return maximum(0, ceildiv(stop - start, step))
    if bounds(step)[1] < 0:
        return maximum(0, ceildiv(start - stop, -step))
    raise Undecidable(f"the sign of the step {step} is not known")


def coordinates(dims: Sequence[Dim]) -> tuple[Coord, ...]:
    """Mesh coordinates in ``dims``, in a stable order."""
    found = {s for x in dims for s in symbols(x) if isinstance(s, Coord)}
    return tuple(sorted(found, key=lambda c: c.key))


def _one(loop: Loop, start: Dim, stop: Dim, step: Dim) -> Dim | Factor:
    n = count(start, stop, step)
    at = coordinates([n])
    if not at:
        return n  # in terms of open extents, or of a caller's loops
    axes = tuple(c.axis for c in at if c.axis)
    if open_names(n):
        return _persistent(loop, start, stop, step, axes)
    run = function([*at], [n])
    sizes = [a.extent for a in axes]
    _bounded(prod(sizes), loop.span)
    table = {crd: run(*crd)[0] for crd in cartesian(*map(range, sizes))}
    return Factor(axes, table)


def _persistent(loop: Loop, start: Dim, stop: Dim, step: Dim, axes: tuple[Axis, ...]) -> Factor:
    """``range(unit, n, units)``: together the units run each of n once; the first runs most.

    The units' starts must be 0, 1, .. step - 1, each once.
    """
    names = open_names(count(start, stop, step))
    if isinstance(step, int) and not coordinates([stop]) and not open_names(start):
        run = function([*coordinates([start])], [start])
        starts = sorted(run(*crd)[0] for crd in cartesian(*(range(a.extent) for a in axes)))
        if starts == list(range(step)):
            return Factor(axes, closed=(maximum(0, stop), count(0, stop, step)))
    raise Undecidable(f"the trips of {loop.var} depend on {names}; bind it with --dim")


def _several(loops: Sequence[Loop], spans: Sequence[tuple[Dim, Dim, Dim]]) -> Dim | Factor:
    """Loops whose bounds name each other, run as Python loops over ``range``."""
    names = " ".join(dict.fromkeys(open_names(x) for span in spans for x in span)).strip()
    if names:
        which = " and ".join(str(x.var) for x in loops)
        raise Undecidable(f"the trips of {which} depend on each other and on {names}")
    held = {s for span in spans for x in span for s in symbols(x) if isinstance(s, LoopVar)}
    if strange := held - {x.var for x in loops}:
        which = " and ".join(sorted(s.name for s in strange))
        raise Undecidable(f"the trips of nested loops depend on {which} of a caller")
    at = coordinates([x for span in spans for x in span])
    axes = tuple(c.axis for c in at if c.axis)
    points = prod(a.extent for a in axes)
    for span in spans[:-1]:
        points *= max(1, int(min(bounds(count(*span))[1], LIMIT + 1)))
    _bounded(points, loops[0].span)
    run = counter(at, loops, spans)
    sizes = [a.extent for a in axes]
    table = {crd: run(*crd) for crd in cartesian(*map(range, sizes))}
    return Factor(axes, table) if axes else table[()]


def _bounded(points: int, span: Span | None) -> None:
    if points > LIMIT:
        refuse(
            "analysis-too-large",
            span,
            what="counting the trips of nested loops",
            points=points,
            limit=LIMIT,
        )


def apart(factors: list[Factor]) -> list[Factor]:
    """Factors that share an axis as one, so that sums multiply."""
    out: list[Factor] = []
    for new in factors:
        for old in [f for f in out if set(f.axes) & set(new.axes)]:
            if old.closed or new.closed:
                raise Undecidable("two loops depend on one coordinate and on open extents")
            out.remove(old)
            new = _merged(old, new)
        out.append(new)
    return out


def _merged(a: Factor, b: Factor) -> Factor:
    axes = tuple(dict.fromkeys((*a.axes, *b.axes)))
    _bounded(prod(x.extent for x in axes), None)
    table: dict[tuple[int, ...], int] = {}
    for crd in cartesian(*(range(x.extent) for x in axes)):
        place = dict(zip(axes, crd, strict=True))
        table[crd] = (
            a.table[tuple(place[x] for x in a.axes)] * b.table[tuple(place[x] for x in b.axes)]
        )
    return Factor(axes, table)


# ---- expressions as Python functions


def function(args: Sequence[Sym], results: Sequence[Dim]) -> Any:
    """``f(*values of args) -> tuple of the results``, compiled once for many points."""
    names = {s: f"v{i}" for i, s in enumerate(args)}
    body = "".join(f"{_say(x, names)}, " for x in results)
    return eval(f"lambda {', '.join(names.values())}: ({body})", dict(_ENV))


def counter(args: Sequence[Sym], loops: Sequence[Loop], spans: Sequence[tuple[Dim, ...]]) -> Any:
    """``f(*values of args) -> trips``: the loops as written, the last one only counted."""
    names = {s: f"v{i}" for i, s in enumerate((*args, *(x.var for x in loops)))}
    lines = [f"def run({', '.join(names[s] for s in args)}):", " n = 0"]
    for depth, (loop, span) in enumerate(zip(loops, spans, strict=True), 1):
        rng = f"range({', '.join(_say(x, names) for x in span)})"
        last = depth == len(loops)
        lines.append(
            f"{' ' * depth}n += len({rng})"
            if last
            else f"{' ' * depth}for {names[loop.var]} in {rng}:"
        )
    space = dict(_ENV)
    exec("\n".join([*lines, " return n"]), space)
    return space["run"]


def adder(
    args: Sequence[Sym], loops: Sequence[Loop], spans: Sequence[tuple[Dim, ...]], amount: Dim
) -> Any:
    """``f(*values of args) -> sum of amount`` over the steps of the loops as written."""
    names = {s: f"v{i}" for i, s in enumerate((*args, *(x.var for x in loops)))}
    steps = "".join(
        f" for {names[x.var]} in range({', '.join(_say(e, names) for e in span)})"
        for x, span in zip(loops, spans, strict=True)
    )
    body = f"sum(({_say(amount, names)}){steps})" if loops else _say(amount, names)
    return eval(f"lambda {', '.join(names[s] for s in args)}: {body}", dict(_ENV))


def visitor(
    args: Sequence[Sym],
    outer: Sequence[tuple[Loop, Span3]],
    inner: Sequence[tuple[Loop, Span3]],
    results: Sequence[Dim],
) -> Any:
    """``f(*values of args) -> per step of outer, a list of result tuples``, one tuple per
    step of ``inner``."""
    loops = (*outer, *inner)
    names = {s: f"v{i}" for i, s in enumerate((*args, *(x.var for x, _ in loops)))}

    def steps(loops: Sequence[tuple[Loop, Span3]]) -> str:
        return "".join(
            f" for {names[x.var]} in range({', '.join(_say(e, names) for e in span)})"
            for x, span in loops
        )

    each = "".join(f"{_say(x, names)}, " for x in results)
    body = f"[({each}){steps(inner)}]" if inner else f"[({each})]"
    body = f"[{body}{steps(outer)}]" if outer else f"[{body}]"
    return eval(f"lambda {', '.join(names[s] for s in args)}: {body}", dict(_ENV))


def _say(x: Dim, names: Mapping[Sym, str]) -> str:
    return render(x, lambda s: names[s])


_ENV: dict[str, Any] = {
    "__builtins__": {"min": min, "max": max, "range": range, "len": len, "sum": sum}
}
