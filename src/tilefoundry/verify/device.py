"""Device memory: views stay inside their buffers, blocks write apart, outputs are whole.

Windows are enumerated over all blocks, over the loops that move them, and over the thread
coordinates in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from typing import NamedTuple

from tilefoundry.ir.expr import Dim, bounds
from tilefoundry.ir.mesh import Axis
from tilefoundry.tir.program import Buffer, Issue, View
from tilefoundry.verify.finding import Findings, Place
from tilefoundry.verify.numbers import Compiler
from tilefoundry.verify.roles import Layout, Site, coordinate, inner_levels, window_axes
from tilefoundry.verify.tiling import tiles
from tilefoundry.verify.touch import Box, meet, partner
from tilefoundry.verify.walker import Owner, Placed, Walker, placed_in, symbols_of

WINDOWS = 200_000
"""Windows of one statement that are looked at."""
PARTS = 256
"""Parts of one window that a block's registers may consist of."""


class Written(NamedTuple):
    box: Box
    owner: Owner
    epoch: int
    write: bool
    site: Site


def check(layout: Layout, findings: Findings, compiler: Compiler) -> None:
    """Judge every view of the kernel."""
    placed = list(placed_in(layout, layout.func.body, (), [0]))
    walker = Walker(layout, compiler)
    touched: dict[Buffer, list[tuple[Placed, View, bool]]] = {}
    for item in placed:
        issue = item.site.stmt
        assert isinstance(issue, Issue)
        for number, view in enumerate((*issue.reads, *issue.writes)):
            if isinstance(view, View):
                _bounds(walker, item, view, findings)
                if view.storage == "gmem":
                    uses = touched.setdefault(view.buffer, [])
                    uses.append((item, view, number >= len(issue.reads)))
    for buffer, uses in touched.items():
        if any(write for _, _, write in uses):
            _buffer(layout, walker, buffer, uses, findings)
    for param in layout.func.params:
        never = not any(write for _, _, write in touched.get(param, ()))
        if param.role == "out" and never and prod(param.shape):
            _unwritten(param, None, 0, findings)


def _buffer(layout: Layout, walker: Walker, buffer: Buffer,
            uses: list[tuple[Placed, View, bool]], findings: Findings) -> None:  # fmt: skip
    """One buffer in device memory that the kernel writes."""
    out = buffer.role == "out"
    if len(uses) == 1:
        item, view, _ = uses[0]
        if tiles(layout, item.around, view, partner(item.site.stmt, view), out):  # type: ignore[arg-type]
            return
    windows: list[Written] = []
    for item, view, write in uses:
        more = _windows(walker, item, view, write)
        if more is None:
            return
        windows += more
    _apart(windows, findings)
    if out:
        _whole(buffer, windows, findings)


# ---- bounds


def _bounds(walker: Walker, item: Placed, view: View, findings: Findings) -> None:
    """The view stays in its buffer (or says what it reads outside), the slot in its ring."""
    claims: list[tuple[Dim, int, str]] = [(view.slot, view.buffer.slots, "slot")]
    if view.fill is None:
        claims += [(x, e, f"axis {n}") for n, (x, e)
                   in enumerate(zip(view.index, view.buffer.shape, strict=True))]  # fmt: skip
    if 0 in view.shape:
        return
    open_claims = []
    for x, extent, name in claims:
        low, high = bounds(x)
        if low < 0 or high >= extent:
            open_claims.append((x, extent, name))
    for x, extent, name in open_claims:
        worst = _worst(walker, item, view, x, extent)
        if worst is not None:
            findings.add(
                "view-bounds", item.site.place, None,
                f"{name} of {view.buffer.name} reaches {worst}, of extent {extent}",
                "keep the window inside, or give the view a fill",
            )  # fmt: skip


def _worst(walker: Walker, item: Placed, view: View, x: Dim, extent: int) -> int | None:
    """A value of ``x`` outside [0, extent), if there is one; extreme variables suffice where
    ``x`` is monotone in each, others are run through."""
    fn = walker.compiler.fn(x)
    own = [(walker.compiler.at(v), e) for v, e in zip(view.vars, view.shape, strict=True)
           if v in symbols_of(x)]  # fmt: skip
    for seen, (_, env, _) in enumerate(walker.run(item, (x,))):
        for corner in _corners(own):
            for place, value in corner:
                env[place] = value
            value = fn(env)
            if not 0 <= value < extent:
                return value
        if seen > WINDOWS:
            return None
    return None


def _corners(own: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    if not own:
        yield ()
        return
    (place, extent), *rest = own
    for value in range(extent) if extent <= 64 else (0, extent // 2, extent - 1):
        for more in _corners(rest):
            yield ((place, value), *more)


# ---- windows


def _windows(walker: Walker, item: Placed, view: View, write: bool) -> list[Written] | None:
    """Every window of the view, None if it is no window or there are too many."""
    axes = window_axes(view)
    if axes is None:
        return None
    starts = tuple(start for start, _ in axes)
    fns = walker.compiler.fns(starts)
    extents = view.buffer.shape
    parts = _Parts(walker.layout, item.site, view, axes)
    seen: dict[tuple[Owner, int, tuple[int, ...]], None] = {}
    for owner, env, epoch in walker.run(item, starts):
        seen[owner, epoch, tuple(f(env) for f in fns)] = None
        if len(seen) > WINDOWS:
            return None
    out: list[Written] = []
    for owner, epoch, low in seen:
        spans = parts.of(owner[0])
        if spans is None:
            return None
        for part in spans:
            box = tuple(
                (max(at + a, 0), min(at + b, e - 1))
                for at, (a, b), e in zip(low, part, extents, strict=True)
            )
            if all(a <= b for a, b in box):
                out.append(Written(box, owner, epoch, write, item.site))
    return out


class _Parts:
    """The parts of a view that the registers of one block hold, as boxes from its start."""

    def __init__(self, layout: Layout, site: Site, view: View,
                 axes: tuple[tuple[Dim, int | None], ...]) -> None:  # fmt: skip
        self.blocks = layout.blocks
        self.shape = tuple(1 if a is None else view.shape[a] for _, a in axes)
        self.digits: list[tuple[int, Axis, int]] = []
        self._known: dict[tuple[int, ...], list[Box] | None] = {}
        other = partner(site.stmt, view)  # type: ignore[arg-type]
        if other is None or other.buffer.layout is None or not other.is_whole:
            return
        along = {axis: n for n, (_, axis) in enumerate(axes)}
        inside = inner_levels(layout.func)
        for d in other.buffer.layout.digits(other.buffer.shape):
            if d.axis.level not in inside and d.axis.extent > 1 and d.dim in along:
                self.digits.append((along[d.dim], d.axis, int(d.inner)))  # type: ignore[arg-type]

    def of(self, block: int) -> list[Box] | None:
        """None if there are too many."""
        units = self.blocks[block]
        at = tuple(coordinate(a, units.get(a.level, 0)) for _, a, _ in self.digits)
        if at not in self._known:
            self._known[at] = self._boxes(at)
        return self._known[at]

    def _boxes(self, at: tuple[int, ...]) -> list[Box] | None:
        boxes: list[Box] = [()]
        for n, extent in enumerate(self.shape):
            mine = [(d[1].extent, d[2], c) for d, c in zip(self.digits, at, strict=True)
                    if d[0] == n]  # fmt: skip
            runs: list[tuple[int, int]] = []
            step = gcd(extent, *(inner for _, inner, _ in mine))
            for i in range(0, extent, step if mine else extent):
                if all(i // inner % size == c for size, inner, c in mine):
                    end = i + (step if mine else extent) - 1
                    if runs and runs[-1][1] == i - 1:
                        runs[-1] = (runs[-1][0], end)
                    else:
                        runs.append((i, end))
            boxes = [(*b, r) for b in boxes for r in runs]
            if len(boxes) > PARTS:
                return None
        return boxes


def _apart(held: list[Written], findings: Findings) -> None:
    """No two owners touch the same element in one epoch if one of them writes."""
    if not any(w.write for w in held):
        return
    if _tiles(held):
        return
    size = [max(w.box[d][1] - w.box[d][0] + 1 for w in held) for d in range(len(held[0].box))]
    cells: dict[tuple[int, ...], dict[tuple[Owner, bool, Box], Written]] = {}
    for item in held:
        for cell in _cells(item.box, size, item.epoch):
            here = cells.setdefault(cell, {})
            for other in here.values():
                if _clash(other, item):
                    findings.add(
                        "device-overlap", other.site.place, item.site.place,
                        f"two participants touch the same elements, at {item.box}, one writes",
                        "let one participant write each element, or put a grid barrier between",
                    )  # fmt: skip
                    return
            here[item.owner, item.write, item.box] = item


def _tiles(held: list[Written]) -> bool:
    """Quick and common: one statement writes, to tiles of one grid, each by one owner."""
    first = held[0]
    size = [hi - lo + 1 for lo, hi in first.box]
    owners: dict[Box, Owner] = {}
    for box, owner, _, _, site in held:
        if site is not first.site or owners.setdefault(box, owner) != owner:
            return False
    return all(
        lo % s == 0 and hi - lo < s for box in owners for (lo, hi), s in zip(box, size, strict=True)
    )


def _clash(a: Written, b: Written) -> bool:
    if a.owner == b.owner or not (a.write or b.write) or not meet(a.box, b.box):
        return False
    # within one block the accesses of different statements are judged by the clocks
    return a.owner[0] != b.owner[0] or a.site is b.site


def _cells(box: Box, size: list[int], epoch: int) -> Iterator[tuple[int, ...]]:
    spans = [range(lo // s, hi // s + 1) for (lo, hi), s in zip(box, size, strict=True)]
    if all(len(s) == 1 for s in spans):
        yield (epoch, *(s.start for s in spans))
        return
    stack: list[tuple[int, ...]] = [(epoch,)]
    for span in spans:
        stack = [(*head, x) for head in stack for x in span]
    yield from stack


def _whole(buffer: Buffer, held: list[Written], findings: Findings) -> None:
    """The windows that are written cover the output, where they do not overlap one another."""
    boxes = {w.box for w in held if w.write}
    volume = sum(prod(hi - lo + 1 for lo, hi in box) for box in boxes)
    if volume < prod(buffer.shape):
        place = next((w.site.place for w in held if w.write), None)
        _unwritten(buffer, place, volume, findings)


def _unwritten(buffer: Buffer, place: Place | None, volume: int, findings: Findings) -> None:
    findings.add(
        "device-unwritten", place, None,
        f"at most {volume} of the {prod(buffer.shape)} elements of {buffer.name} are written",
        "write every element of an output",
    )  # fmt: skip


__all__ = ["check"]
