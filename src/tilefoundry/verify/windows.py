"""What each block touches of a buffer in device memory, by enumeration."""

from __future__ import annotations

from itertools import product as cartesian
from math import gcd, prod
from typing import NamedTuple

from tilefoundry.ir.expr import Dim
from tilefoundry.tir.program import View
from tilefoundry.verify.roles import Layout, Site, coordinate, inner_levels, window_axes
from tilefoundry.verify.rounds import Epoch
from tilefoundry.verify.tiling import Part, box_of, held_parts
from tilefoundry.verify.touch import Box, partner
from tilefoundry.verify.walker import Owner, Placed, Walker

WINDOWS, TOGETHER = 200_000, 600_000
"""Windows of one statement, and of all of one buffer, that are looked at."""
ELEMENTS = 1 << 14
"""Elements of all windows of one statement, where these are no boxes."""
PARTS = 256
"""Parts of one window that a block's registers may consist of."""


class Written(NamedTuple):
    box: Box
    owner: Owner
    epoch: Epoch
    write: bool
    site: Site


def windows_of(walker: Walker, item: Placed, view: View, write: bool) -> list[Written] | None:
    """Every window of the view as boxes, None if there are too many."""
    axes = window_axes(view)
    held = _Held(walker.layout, item.site, view)
    if axes is not None:
        spans = _Parts(held, view, axes)
        return _boxes(walker, item, view, write, tuple(start for start, _ in axes), spans)
    box = None if held.parts else box_of(view)
    if box is None:
        return _elements(walker, item, view, write, held)
    whole = tuple((0, extent - 1) for _, extent in box)
    return _boxes(walker, item, view, write, tuple(start for start, _ in box), whole)


def _boxes(walker: Walker, item: Placed, view: View, write: bool, starts: tuple[Dim, ...],
           parts: _Parts | Box) -> list[Written] | None:  # fmt: skip
    """Windows that begin at ``starts`` and consist of ``parts``."""
    fns = walker.compiler.fns(starts)
    seen: dict[tuple[Owner, Epoch, tuple[int, ...]], None] = {}
    for owner, env, epoch in walker.run(item, starts):
        seen[owner, epoch, tuple(f(env) for f in fns)] = None
        if len(seen) > WINDOWS:
            return None
    out: list[Written] = []
    for owner, epoch, low in seen:
        spans = parts.of(owner[0]) if isinstance(parts, _Parts) else [parts]
        if spans is None:
            return None
        for part in spans:
            box = tuple(
                (max(at + a, 0), min(at + b, e - 1))
                for at, (a, b), e in zip(low, part, view.buffer.shape, strict=True)
            )
            if all(a <= b for a, b in box):
                out.append(Written(box, owner, epoch, write, item.site))
    return out


def _elements(walker: Walker, item: Placed, view: View, write: bool,
              held: _Held) -> list[Written] | None:  # fmt: skip
    """Every element by itself."""
    if prod(view.shape) > ELEMENTS:
        return None
    fns = walker.compiler.fns(view.index)
    own = [walker.compiler.at(v) for v in view.vars]
    seen: dict[Written, None] = {}
    count = 0
    for owner, env, epoch in walker.run(item, view.index):
        for at in cartesian(*(range(e) for e in view.shape)):
            count += 1
            if count > ELEMENTS:
                return None
            if not held.has(owner[0], at):
                continue
            for place, value in zip(own, at, strict=True):
                env[place] = value
            index = tuple(f(env) for f in fns)
            if all(0 <= i < e for i, e in zip(index, view.buffer.shape, strict=True)):
                box = tuple((i, i) for i in index)
                seen[Written(box, owner, epoch, write, item.site)] = None
    return list(seen)


class _Held:
    """Which elements of a view one block moves: those that its registers hold."""

    def __init__(self, layout: Layout, site: Site, view: View) -> None:
        self.blocks = layout.blocks
        other = partner(site.stmt, view)  # type: ignore[arg-type]
        inside = inner_levels(layout.func)
        self.parts: list[Part] = [
            p for p in (held_parts(other) if other is not None else ())
            if p.axis.level not in inside and p.extent > 1
        ]  # fmt: skip

    def at(self, block: int) -> tuple[int, ...]:
        units = self.blocks[block]
        return tuple(
            coordinate(p.axis, units.get(p.axis.level, 0)) // p.below % p.extent for p in self.parts
        )

    def has(self, block: int, index: tuple[int, ...]) -> bool:
        return all(
            index[p.dim] // p.inner % p.extent == c
            for p, c in zip(self.parts, self.at(block), strict=True)
        )


class _Parts:
    """The parts of a window that the registers of one block hold, as boxes from its start."""

    def __init__(self, held: _Held, view: View,
                 axes: tuple[tuple[Dim, int | None], ...]) -> None:  # fmt: skip
        self.held = held
        self.shape = tuple(1 if a is None else view.shape[a] for _, a in axes)
        self.along = tuple(a for _, a in axes)
        self._known: dict[tuple[int, ...], list[Box] | None] = {}

    def of(self, block: int) -> list[Box] | None:
        """None if there are too many."""
        at = self.held.at(block)
        if at not in self._known:
            self._known[at] = self._boxes(at)
        return self._known[at]

    def _boxes(self, at: tuple[int, ...]) -> list[Box] | None:
        boxes: list[Box] = [()]
        for axis, extent in zip(self.along, self.shape, strict=True):
            mine = [(p.extent, p.inner, c)
                    for p, c in zip(self.held.parts, at, strict=True) if p.dim == axis]  # fmt: skip
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


__all__ = ["ELEMENTS", "TOGETHER", "WINDOWS", "Written", "windows_of"]
