"""Windows that leave their tensor: of each slice, whether it stays inside for every unit in every
step of the loops around it, leaves it for one that can be named, or neither can be told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import (
    Dim,
    Expr,
    LoopVar,
    MinMax,
    Sym,
    bounds,
    ceildiv,
    evaluate,
    extremes,
    render,
    substitute,
    symbols,
)
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Block, Loop, Node, Scope

MOST_FREE = 10
"""Coordinates and loops whose first and last values are tried together: 1,024 combinations."""
FEW = 4
"""Values of a coordinate or a loop that are all tried."""
MOST_POINTS = 1 << 17
"""Units times steps that are all looked at where their first and last ones leave it open."""


@dataclass(frozen=True)
class Window:
    """Elements ``start``, ``start + stride``, ... of an axis of a tensor, ``size`` of them, taken
    by ``node`` in each step of ``loops``, outermost first."""

    node: Node
    axis: int
    extent: Dim
    start: Dim
    size: Dim
    stride: Dim
    loops: tuple[Loop, ...]

    @property
    def last(self) -> Dim:
        return self.start + (self.size - 1) * self.stride

    @property
    def parts(self) -> tuple[Dim, ...]:
        return self.start, self.size, self.stride, self.extent

    @property
    def is_open(self) -> bool:
        """It depends on what is bound with a call, as open extents are."""
        ends = (x for loop in self.loops for x in (loop.start, loop.stop, loop.step))
        found = {s for x in (*self.parts, *ends) for s in symbols(x)}
        return any(not isinstance(s, (Coord, LoopVar)) for s in found)

    @property
    def is_inside(self) -> bool:
        """Whether bounds prove that it never leaves the tensor."""
        if any(bounds(loop.stop - loop.start)[1] <= 0 for loop in self.loops):
            return True  # in no step at all
        above = self.last - self.extent
        if (bounds(self.start)[0] >= 0 and bounds(above)[1] < 0) or bounds(self.size)[1] <= 0:
            return True
        least, most = -_most(-self.start, self.loops), _most(above, self.loops)
        return least >= 0 and most < 0

    def leaves(self, at: Mapping[Sym, int]) -> bool:
        start, last = evaluate(self.start, at), evaluate(self.last, at)
        taken = evaluate(self.size, at) > 0
        return taken and (start < 0 or last >= evaluate(self.extent, at))


def _most(x: Dim, loops: Sequence[Loop]) -> float:
    """An upper bound of ``x`` in steps that are executed. The least of several is at most each of
    them; a loop's variable that occurs as a term alone lies between the loop's start and stop,
    whatever those are of."""
    for mono, coef in x.terms if isinstance(x, Expr) else ():
        pick = mono[0] if len(mono) == 1 else None
        if isinstance(pick, MinMax) and (pick.name == "min") == (coef > 0):
            rest = x - coef * pick.expr()
            return min(_most(rest + coef * part, loops) for part in pick.args)
    for loop in reversed(loops):
        coef = _slope(x, loop.var)
        even = (loop.stop - loop.start) % loop.step == 0
        end = loop.start if coef < 0 else loop.stop - (loop.step if even else 1)
        if coef:
            nearer = substitute(x, {loop.var: end})
            x = nearer if extremes(nearer)[1] < extremes(x)[1] else x
    return extremes(x)[1]


def _slope(x: Dim, var: LoopVar) -> int:
    """The coefficient of ``var`` where it occurs in one term, alone; else 0."""
    terms = x.terms if isinstance(x, Expr) else ()
    alone = [coef for mono, coef in terms if mono == (var,)]
    elsewhere = any(var in symbols(Expr(((mono, 1),))) for mono, _ in terms if mono != (var,))
    return alone[0] if alone and not elsewhere else 0


def hold_windows(body: Block) -> None:
    """Refuse the first window that leaves its tensor for a unit and a step (``slice-range``)."""
    for window in windows(body):
        _, at = judged(window)
        if at is not None:
            where = ", ".join(f"{s.name} = {v}" for s, v in at.items())
            refuse(
                "slice-range",
                window.node.span,
                notes=(f"as with {where}: from {evaluate(window.start, at)} to "
                       f"{evaluate(window.last, at)}",) if at else (),
                op=f"tf.{window.node.op.name}",
                axis=window.axis,
                extent=window.extent,
                start=window.start,
                size=window.size,
                stride=window.stride,
            )  # fmt: skip


def undecided(body: Block) -> Iterator[Window]:
    """Windows of which neither is known."""
    return (w for w in windows(body) if judged(w) == (False, None))


def judged(window: Window) -> tuple[bool, dict[Sym, int] | None]:
    """Whether it is known to stay inside, and where it is known to leave: bounds, then the first
    and last values of units and steps, then all of them."""
    if window.is_inside:
        return True, None
    for idle in (False, True):  # most are told without the loops that only may make no step
        at = witness(window, idle)
        found = (False, at) if at is not None else _every_point(window, idle)
        if found[1] is None:
            return found
    return found


def windows(body: Block, loops: tuple[Loop, ...] = ()) -> Iterator[Window]:
    """Every window of a function's body, axis by axis, in program order."""
    for stmt in body.stmts:
        match stmt:
            case Node() if stmt.op.name == "slice":
                sizes: Any = stmt.attrs["sizes"]
                strides = stmt.attrs["strides"] or (1,) * len(sizes)
                yield from _windows(stmt, (stmt.attrs["starts"], sizes, strides), loops)
            case Node() if stmt.op.name == "insert_slice":
                shape = stmt.args[1].tensor.shape
                parts = (stmt.attrs["offsets"], shape, (1,) * len(shape))
                yield from _windows(stmt, parts, loops)
            case Scope():
                yield from windows(stmt.body, loops)
            case Loop():
                yield from windows(stmt.body, (*loops, stmt))


def _windows(node: Node, parts: Sequence[Any], loops: tuple[Loop, ...]) -> Iterator[Window]:
    rows = zip(node.args[0].tensor.shape, *parts, strict=True)
    for axis, (extent, start, size, stride) in enumerate(rows):
        yield Window(node, axis, extent, start, size, stride, loops)


def witness(window: Window, idle: bool = True) -> dict[Sym, int] | None:
    """Coordinates of a unit and steps of loops for which it leaves the tensor: of those where each
    is at its first or last value, or at any of few. None where there is none, or where there are
    too many to try. ``idle``: loops around that may make no step are looked at, too."""
    around = {loop.var: loop for loop in window.loops}
    free = _free(window, around, idle)
    if free is None or len(free) > MOST_FREE:
        return None
    coords = sorted((s for s in free if isinstance(s, Coord)), key=lambda s: s.name)
    steps = [loop for var, loop in around.items() if var in free]
    return _search(window, coords, steps, {})


def _every_point(window: Window, idle: bool) -> tuple[bool, dict[Sym, int] | None]:
    """As :func:`judged`, by all units and steps, compiled; unknown where they are too many."""
    around = {loop.var: loop for loop in window.loops}
    free = _free(window, around, idle)
    if free is None:
        return False, None
    coords = sorted((s for s in free if isinstance(s, Coord)), key=lambda s: s.name)
    steps = [loop for var, loop in around.items() if var in free]
    points: float = 1
    for lo, hi in (bounds(c.expr()) for c in coords):
        points *= hi - lo + 1
    for loop in steps:
        points *= max(1, bounds(ceildiv(loop.stop - loop.start, loop.step))[1])
    if points > MOST_POINTS:
        return False, None
    syms: list[Sym] = [*coords, *(loop.var for loop in steps)]
    if not syms:
        return True, None
    names = {s: f"v{n}" for n, s in enumerate(syms)}

    def say(x: Dim) -> str:
        return f"({render(x, lambda s: names[s])})"

    spans = [f"range({bounds(c.expr())[0]}, {bounds(c.expr())[1]} + 1)" for c in coords]
    spans += [f"range({', '.join(map(say, (x.start, x.stop, x.step)))})" for x in steps]
    walk = " ".join(f"for {names[s]} in {span}" for s, span in zip(syms, spans, strict=True))
    leaves = f"{say(window.start)} < 0 or {say(window.last)} >= {say(window.extent)}"
    at = "".join(f"{n}, " for n in names.values())
    code = f"next((({at}) {walk} if {say(window.size)} > 0 and ({leaves})), None)"
    try:
        found = eval(code, {"__builtins__": {"min": min, "max": max, "range": range, "next": next}})
    except (ZeroDivisionError, ValueError):  # refused where it is evaluated
        return False, None
    return found is None, None if found is None else dict(zip(syms, found, strict=True))


def _free(window: Window, around: Mapping[LoopVar, Loop], idle: bool) -> set[Sym] | None:
    """The symbols that the parts of ``window``, the bounds of their loops, and with ``idle`` loops
    around that may make no step take; None where one of them is neither a loop's nor a coordinate,
    or where coordinates depend on each other or have not all of their values here."""
    found: set[Sym] = set()
    queue = {s for p in window.parts for s in symbols(p)}
    if idle:
        queue |= {v for v, x in around.items() if bounds(ceildiv(x.stop - x.start, x.step))[0] < 1}
    while queue:
        sym = queue.pop()
        found.add(sym)
        if isinstance(sym, LoopVar) and sym in around:
            loop = around[sym]
            queue |= {s for p in (loop.start, loop.stop, loop.step) for s in symbols(p)} - found
        elif not isinstance(sym, Coord) or sym.axis is None:
            return None
    axes = [s.axis for s in found if isinstance(s, Coord) and s.axis]
    if not all(_vary_freely(window.node.mesh, x, axes) for x in {a.level for a in axes}):
        return None
    digits = sorted((a.level, a.stride, a.stride * a.extent)
                    for s in found if isinstance(s, Coord) and (a := s.axis))  # fmt: skip
    for (level, _, above), (other, stride, _) in itertools.pairwise(digits):
        if level == other and stride < above:
            return None
    return found


def _vary_freely(mesh: Mesh, level: str, coords: Sequence[Axis]) -> bool:
    """The units of ``level`` that ``mesh`` has in force have all values of ``coords``, which may be
    those of a wider mesh."""
    axes = [a for a in coords if a.level == level]
    if not mesh.at(level) or all(a in mesh.axes for a in axes):
        return True
    places = {tuple((u - a.offset) // a.stride % a.extent for a in axes) for u in mesh.units(level)}
    return len(places) == prod(a.extent for a in axes)


def _search(
    window: Window, coords: list[Coord], steps: list[Loop], at: dict[Sym, int]
) -> dict[Sym, int] | None:
    if coords:
        lo, hi = bounds(coords[0].expr())
        values, sym = range(int(lo), int(hi) + 1), coords[0]
        rest = (coords[1:], steps)
    elif steps:
        loop = steps[0]
        values, sym, rest = _steps(loop, at), loop.var, (coords, steps[1:])
    else:
        return at if _leaves(window, at) else None
    for value in values if len(values) <= FEW else (values[0], values[-1]):
        found = _search(window, *rest, {**at, sym: value})
        if found is not None:
            return found
    return None


def _steps(loop: Loop, at: Mapping[Sym, int]) -> range:
    try:
        return range(*(evaluate(p, at) for p in (loop.start, loop.stop, loop.step)))
    except (ZeroDivisionError, ValueError):  # refused where it is evaluated
        return range(0)


def _leaves(window: Window, at: Mapping[Sym, int]) -> bool:
    try:
        return window.leaves(at)
    except ZeroDivisionError:
        return False
