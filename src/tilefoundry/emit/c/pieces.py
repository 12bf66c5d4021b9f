"""The loops of a copy in memory: axes cut where layouts cut them, the nearest innermost.

In each piece an element's address is linear, so loops need no division and the compiler can
use vectors where both sides are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilefoundry.emit.c.held import Segment
from tilefoundry.ir.expr import Dim, Expr, IterVar, Sym, multiple_of, symbols
from tilefoundry.tir.program import View


def copy_loops(shape: tuple[int, ...], views: Iterable[View]) -> tuple[Segment, ...]:
    """Segments of a tile that ``views`` lie in, outermost first within an axis."""
    seen = list(views)
    out: list[Segment] = []
    for axis, extent in enumerate(shape):
        cuts = sorted({c for v in seen for c in _cuts(v, axis, extent)})
        if any(b % a for a, b in zip([1, *cuts], [*cuts, extent], strict=True)):
            cuts = []
        above = extent
        for cut in reversed(cuts):
            out.append(Segment(axis, above // cut, cut))
            above = cut
        if above > 1:
            out.append(Segment(axis, above, 1))
    return tuple(s for s in out if s.extent > 1)


def _cuts(view: View, axis: int, extent: int) -> list[int]:
    """Sizes of the blocks that the buffer's layout cuts an axis of the view into."""
    var = view.vars[axis]
    found = [n for n, x in enumerate(view.index) if var in symbols(x)]
    layout = view.buffer.layout
    if len(found) != 1 or layout is None or layout.strides is None:
        return []
    start = view.index[found[0]] - var.expr()
    if var in symbols(start):
        return []
    out: list[int] = []
    inner = 1
    for mode in reversed(layout.groups(view.buffer.shape)[found[0]]):
        if 1 < inner < extent and multiple_of(start) % inner == 0:
            out.append(inner)
        inner *= int(layout.modes[mode])  # type: ignore[arg-type]
    return out


def nearest_last(segments: tuple[Segment, ...], vars: tuple[IterVar, ...], place: Dim) -> list[int]:
    """The numbers of the segments, the one of the smallest step in ``place`` last."""
    far: dict[Sym, int] = {}
    for mono, coef in place.terms if isinstance(place, Expr) else ():
        if len(mono) == 1 and isinstance(mono[0], Sym):
            far[mono[0]] = abs(coef)
    return sorted(range(len(segments)), key=lambda n: -far.get(vars[n], 1 << 62))
