"""Where the elements of a tile lie in one memory: offsets per axis, base and swizzle.

A tile in memory is a whole buffer or a window of one. Both are a :class:`Place`: element
(i0, i1, ...) is at ``base + Σ along(axis, i)`` elements from the buffer's start, and its byte
address is the swizzle of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod

from tilefoundry.ir.expr import Dim, IterVar, Sym, multiple_of, substitute
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

Modes = tuple[tuple[int, Dim], ...]
"""(extent, stride in elements) of one axis, outermost first."""

SWIZZLES = {32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3), 128: Swizzle(3, 4, 3)}
"""Span in bytes to the swizzle of that span."""
PARAMETER_ALIGN = 16
"""Bytes that every parameter and every shared buffer is aligned to."""


@dataclass(frozen=True)
class Window:
    """A box of ``whole``: ``axes`` says which axis of the tile runs along each axis of it
    (None: a single index there), ``starts`` where the box begins, ``steps`` how far apart
    neighbours of the tile are."""

    whole: TensorType
    axes: tuple[int | None, ...]
    starts: tuple[Dim, ...]
    steps: tuple[int, ...] = ()

    @staticmethod
    def all_of(whole: TensorType) -> Window:
        """The tile is all of ``whole``."""
        return Window(whole, tuple(range(whole.rank)), (0,) * whole.rank)

    @staticmethod
    def at(
        whole: TensorType, vars: Sequence[IterVar], shape: Sequence[int], index: Sequence[Dim]
    ) -> Window | None:
        """The window whose element ``vars`` (of ``shape``) is element ``index`` of ``whole``;
        None if it is no box: each coordinate may move with one variable only."""
        zero: dict[Sym, Dim] = dict.fromkeys(vars, 0)
        axes: list[int | None] = []
        starts: list[Dim] = []
        steps: list[int] = []
        left = {n for n, extent in enumerate(shape) if extent != 1}
        single: dict[Sym, Dim] = {v: 0 for v, e in zip(vars, shape, strict=True) if e == 1}
        for place in index:
            start = substitute(place, zero)
            step = substitute(place, single) - start
            starts.append(start)
            if step == 0:
                axes.append(None)
                steps.append(1)
                continue
            found = next((n for n in sorted(left) if _slope(step, vars[n])), None)
            if found is None:
                return None
            left.discard(found)
            axes.append(found)
            steps.append(_slope(step, vars[found]))
        return None if left else Window(whole, tuple(axes), tuple(starts), tuple(steps))

    def step(self, axis: int) -> int:
        return self.steps[axis] if self.steps else 1

    def along(self, tile_axis: int) -> int | None:
        """The axis of ``whole`` that axis ``tile_axis`` of the tile runs along."""
        return self.axes.index(tile_axis) if tile_axis in self.axes else None


def _slope(step: Dim, var: IterVar) -> int:
    """c where ``step`` is c · var, else 0."""
    if isinstance(step, int) or len(step.terms) != 1:
        return 0
    mono, coef = step.terms[0]
    return coef if len(mono) == 1 and mono[0] is var and coef > 0 else 0


def window_of(node: Node | None) -> Window | None:
    """The window of a stored value that ``node`` is: slices, and unit axes taken away or
    put in, are followed; None for what is no window of another value."""
    if node is None or not isinstance(node.type, TensorType):
        return None
    chain: list[Node] = []
    at = node
    while at.op.name in ("slice", "reshape") and at.args:
        chain.append(at)
        at = at.args[0]
    if not chain or not isinstance(at.type, TensorType):
        return None
    found = Window.all_of(at.type)
    axes, starts, steps = list(found.axes), list(found.starts), [1] * len(found.axes)
    here = at.type.shape
    for view in reversed(chain):
        to = view.tensor.shape
        if view.op.name == "slice":
            begin, pace = view.attrs["starts"], view.attrs["strides"]
            assert isinstance(begin, tuple) and isinstance(pace, tuple)
            for n, axis in enumerate(axes):
                if axis is not None:
                    starts[n] = starts[n] + begin[axis] * steps[n]
                    steps[n] *= int(pace[axis]) if pace else 1
        else:
            moved = _squeezed(here, to)
            if moved is None:
                return None
            axes = [None if a is None else moved.get(a) for a in axes]
        here = to
    return Window(at.type, tuple(axes), tuple(starts), tuple(steps))


def _squeezed(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> dict[int, int] | None:
    """Old axis to new axis where they differ by axes of extent 1 only."""
    kept = [n for n, e in enumerate(old) if e != 1]
    made = [n for n, e in enumerate(new) if e != 1]
    if [old[n] for n in kept] != [new[n] for n in made]:
        return None
    return dict(zip(kept, made, strict=True))


@dataclass(frozen=True)
class Place:
    """``modes`` per axis of the tile, ``bits`` of an element, the swizzle of the buffer.

    ``align``: bytes that the byte offset of element 0 is surely a multiple of. In elements,
    ``shift`` is the layout's own offset, and ``coarse`` what a window's start is a multiple of
    (0: no start) but for steps along the contiguous modes.
    """

    modes: tuple[Modes, ...]
    bits: int
    swizzle: Swizzle | None = None
    base: Dim = 0
    align: int = PARAMETER_ALIGN
    coarse: int = 0
    shift: int = 0

    def along(self, axis: int, index: int) -> Dim:
        """The axis' contribution to the offset, in elements."""
        total: Dim = 0
        for extent, stride in reversed(self.modes[axis]):
            total = total + index % extent * stride
            index //= extent
        return total

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(e for e, _ in axis) for axis in self.modes)

    @property
    def chunk(self) -> int:
        """Bytes that stay together under the swizzle."""
        return 1 << self.swizzle.M if self.swizzle is not None and self.swizzle.B else 1 << 30

    def byte(self, index: Sequence[int], base: int = 0) -> int:
        """The byte address of element ``index``, the buffer's start being at ``base``."""
        linear: Dim = self.base
        for axis, i in enumerate(index):
            linear = linear + self.along(axis, i)
        assert isinstance(linear, int)
        address = base + linear * self.bits // 8
        return address if self.swizzle is None else self.swizzle(address)


def buffer_modes(type: TensorType) -> tuple[tuple[tuple[Dim, Dim], ...], ...]:
    """(extent, stride) of the modes of each axis of a whole buffer, outermost first."""
    layout = type.layout
    if layout is None or layout.strides is None:
        strides: list[Dim] = []
        step: Dim = 1
        modes = type.shape if layout is None else layout.modes
        for extent in reversed(modes):
            strides.insert(0, step)
            step = step * extent
        groups = (
            tuple(range(n, n + 1) for n in range(type.rank))
            if layout is None
            else layout.groups(type.shape)
        )
    else:
        modes, strides = layout.modes, list(layout.strides)
        groups = layout.groups(type.shape)
    return tuple(joined([(modes[m], strides[m]) for m in group]) for group in groups)


def joined(modes: Sequence[tuple[Dim, Dim]]) -> tuple[tuple[Dim, Dim], ...]:
    """Modes of one axis without those of extent 1, continuing strides merged."""
    out: list[tuple[Dim, Dim]] = []
    for extent, stride in reversed(modes):
        if extent == 1:
            continue
        if out and stride == out[-1][0] * out[-1][1]:
            out[-1] = (extent * out[-1][0], out[-1][1])
        else:
            out.append((extent, stride))
    return tuple(reversed(out))


@lru_cache(maxsize=4096)  # a search asks of the same tiles again and again
def place(type: TensorType, window: Window | None = None) -> Place | str:
    """Where the tile of ``type`` lies; words for a tile that no strides describe."""
    if window is None:
        window = Window.all_of(type)
    whole = window.whole
    layout = whole.layout
    base: Dim = layout.offset if layout is not None else 0
    parts = buffer_modes(whole)
    bits = type.dtype.bits
    units, coarse = gcd(PARAMETER_ALIGN * 8, multiple_of(base) * bits), 0
    out: list[Modes] = [()] * type.rank
    for n, (axis, start) in enumerate(zip(window.axes, window.starts, strict=True)):
        base = base + _offset(parts[n], start)
        for multiple, stride in _contributions(parts[n], start):
            units = gcd(units, multiple * bits)
            coarse = coarse if stride == 1 else gcd(coarse, multiple)
        if axis is None:
            continue
        size = type.shape[axis]
        if not isinstance(size, int):
            return f"axis {axis} of the tile is {size}, not a number"
        cut = _cut(parts[n], size, start, window.step(n))
        if cut is None:
            return f"axis {axis} of the tile crosses the blocks of {whole}"
        out[axis] = cut
    swizzle = layout.swizzle if layout is not None else None
    shift = layout.offset if layout is not None else 0
    return Place(tuple(out), bits, swizzle, base, max(1, units // 8), coarse, shift)


def _cut(modes: Sequence[tuple[Dim, Dim]], size: int, start: Dim, step: int) -> Modes | None:
    """``size`` elements from ``start`` on as modes of their own."""
    if not modes or size == 1:
        return () if size == 1 else None
    if len(modes) == 1:
        return ((size, modes[0][1] * step),)
    inner, out = 1, list[tuple[int, Dim]]()
    for n, (extent, stride) in enumerate(reversed(modes)):
        outermost = n == len(modes) - 1
        if inner == size:
            break
        if not isinstance(extent, int) or size % inner:
            return None
        take = size // inner if outermost or inner * extent > size else extent
        # digits of the start must not carry into the digits of the tile
        block = inner if outermost else inner * take
        if take * inner > size or (not outermost and extent % take) or multiple_of(start) % block:
            return None
        out.append((take, stride))
        inner *= take
    return tuple(reversed(out)) if inner == size and step == 1 else None


def _offset(modes: Sequence[tuple[Dim, Dim]], start: Dim) -> Dim:
    if start == 0 or not modes:
        return 0
    total: Dim = 0
    for n, (extent, stride) in enumerate(reversed(modes)):
        last = n == len(modes) - 1
        total = total + (start if last else start % extent) * stride
        start = start // extent
    return total


def _contributions(modes: Sequence[tuple[Dim, Dim]], start: Dim) -> list[tuple[int, Dim]]:
    """For each mode, what its part of :func:`_offset` is surely a multiple of (0: none), and
    its stride, innermost first."""
    known, inner = multiple_of(start), 1
    out: list[tuple[int, Dim]] = []
    for n, (extent, stride) in enumerate(reversed(modes)):
        outermost = n == len(modes) - 1
        step = multiple_of(stride)
        if known % inner:
            out.append((step, stride))
        elif outermost or not isinstance(extent, int):
            out.append((known // inner * step, stride))
        else:
            digit = gcd(known // inner, extent)
            out.append((digit % extent * step, stride))
        inner *= extent if isinstance(extent, int) else 1
    return out


def refined(places: Sequence[Place], axis: int) -> list[tuple[int, int]] | None:
    """(inner, extent) of the pieces of ``axis``, innermost first, such that each lies in one
    mode of every place; None where their modes do not nest."""
    cuts: set[int] = set()
    for p in places:
        inner = 1
        for extent, _ in reversed(p.modes[axis]):
            inner *= extent
            cuts.add(inner)
    inner, out = 1, list[tuple[int, int]]()
    for cut in sorted(cuts - {1}):
        if cut % inner:
            return None
        out.append((inner, cut // inner))
        inner = cut
    return out


def panel_layouts(
    shape: Sequence[int], bits: int, fast: int
) -> list[tuple[int, Layout | ComposedLayout]]:
    """(span, layout) for a rank-2 tile whose axis ``fast`` is contiguous, in panels of one
    swizzle span in bytes that follow each other, the widest first; span 16: no swizzle."""
    out: list[tuple[int, Layout | ComposedLayout]] = []
    slow = shape[1 - fast]
    for span in (128, 64, 32, 16):
        width = span * 8 // bits
        if shape[fast] % width:
            continue
        count = shape[fast] // width
        outer = ((count, width), (slow * width, 1)) if count > 1 else (width, 1)
        order = (outer, (slow, width)) if fast == 0 else ((slow, width), outer)
        made = Layout((order[0][0], order[1][0]), (order[0][1], order[1][1]))
        out.append((span, made | SWIZZLES[span] if span in SWIZZLES else made))
    return out


def panels(shape: Sequence[int], bits: int, fast: int, widest: int = 128) -> str:
    """The widest of :func:`panel_layouts` up to a span, to be pasted; without a swizzle
    where none fits, rows as they are."""
    for span, made in panel_layouts(shape, bits, fast):
        if 16 < span <= widest:
            return str(made)
    return str(Layout(tuple(shape), (shape[1], 1) if fast else (1, shape[0])))
