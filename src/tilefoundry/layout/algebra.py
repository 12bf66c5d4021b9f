"""The algebra of layouts, row-major: coalesce, compose, complement, invert, divide, multiply.

CuTe decomposes an index with its first mode fastest; here the last mode is the
fastest. Every function is the mirror image of CuTe's: reversing the modes of the
arguments and of the result (:func:`to_cute`) gives CuTe's arguments and result.
So a divided layout reads ``(rest, tile)`` here and ``(tile, rest)`` there.

All functions need constant extents and strides, except :func:`coalesce`,
:func:`filter`, :func:`slice_layout` of unnested modes, and the printing of CuTe
forms, which take symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

from tilefoundry.diag import refuse
from tilefoundry.layout.inttuple import IntTuple, compact_strides, flatten, is_tuple, product, text
from tilefoundry.layout.layout import ComposedLayout, Layout, from_leaves, of_modes

Tiler: TypeAlias = Layout | int | tuple["Tiler", ...] | None
"""What selects or divides: a layout; an extent ``n``, for ``Layout(n)``; ``None``,
for a mode left whole; a tuple of these, one per mode."""


def coalesce(layout: Layout, profile: IntTuple | None = None) -> Layout:
    """The shortest layout with the same offset at every index.

    With a ``profile``, each leaf of it keeps its mode apart, and that mode is
    coalesced on its own: ``coalesce(L, (1, 1))`` keeps rank 2.
    """
    if profile is None or not is_tuple(profile):
        return layout.coalesce()
    modes = _modes(layout, len(profile), text(profile))
    return of_modes(tuple(map(coalesce, modes, profile)))


def filter(layout: Layout) -> Layout:
    """The coalesced layout without its modes of stride 0: each offset is still reached."""
    kept = tuple((s, d) for s, d in layout.leaves() if not (isinstance(d, int) and d == 0))
    return from_leaves(kept).coalesce()


@overload
def composition(a: Layout, b: Tiler) -> Layout: ...
@overload
def composition(a: Layout, b: ComposedLayout) -> ComposedLayout: ...
@overload
def composition(a: ComposedLayout, b: Tiler | ComposedLayout) -> ComposedLayout: ...
def composition(a: Layout | ComposedLayout, b: Tiler | ComposedLayout) -> Layout | ComposedLayout:
    """``R`` with ``R(c) = a(b(c))`` for every coordinate ``c`` of ``b``.

    ``R`` has the modes of ``b``, some of them split. A tuple ``b`` selects mode
    by mode. An offset of ``b`` goes through ``a``; offset and swizzle of ``a``
    stay. Refused where ``b`` leaves ``a``, where modes of ``b`` straddle modes
    of ``a``, or where ``b`` is swizzled.
    """
    if isinstance(a, ComposedLayout):
        inner = composition(a.layout, b)
        if isinstance(inner, ComposedLayout):
            return ComposedLayout(a.swizzle, a.offset + inner.offset, inner.layout)
        return ComposedLayout(a.swizzle, a.offset, inner)
    if isinstance(b, ComposedLayout):
        if b.swizzle is not None:
            refuse("layout-composition-swizzle", inner=b)
        if not isinstance(b.offset, int):
            refuse("layout-symbolic", layout=b, symbol=b.offset)
        moved = _compose(a, b.layout, b.offset)
        return ComposedLayout(None, a(b.offset), moved)
    if b is None:
        return a
    if isinstance(b, tuple):
        return of_modes(tuple(map(composition, _modes(a, len(b), b), b)))
    return _compose(a, Layout(b) if isinstance(b, int) else b, 0)


_Flat: TypeAlias = Sequence[tuple[int, int]]


def _compose(a: Layout, b: Layout, start: int) -> Layout:
    """``c -> a(start + b(c)) - a(start)``.

    In the mixed radix of the coalesced ``a``, a leaf of ``b`` adds multiples of
    its stride's digits. While no digit carries, ``a`` is linear in the leaf;
    where it would carry, the leaf is split. All leaves together, on top of
    ``start``, must not carry either.
    """
    flat = a.coalesce().constants()
    b.constants()
    if b.size() == 0:
        return b
    reach = start + b.cosize() - 1
    if reach >= a.size():
        refuse("layout-composition-range", outer=a, size=a.size(), inner=b, reach=reach)
    used = _digits(start, flat)

    def node(mode: Layout) -> Layout:
        if is_tuple(mode.shape):
            return of_modes(tuple(map(node, mode)))
        ((extent, stride),) = mode.constants()
        counts = _split(extent, stride, flat, used)
        if counts is None:
            nearest = next(n for n in range(extent - 1, 0, -1) if _split(n, stride, flat, used))
            refuse(
                "layout-composition",
                outer=a,
                inner=b,
                extent=extent,
                stride=stride,
                nearest=nearest,
            )
        modes: list[tuple[int, int]] = []
        for count, step in counts:
            digits = _digits(step, flat)
            for k, digit in enumerate(digits):
                used[k] += (count - 1) * digit
            modes.append((count, sum(m * d for m, (_, d) in zip(digits, flat, strict=True))))
        return Layout(*modes[0]) if len(modes) == 1 else from_leaves(tuple(reversed(modes)))

    return node(b)


def _split(
    extent: int, stride: int, flat: _Flat, used: Sequence[int]
) -> list[tuple[int, int]] | None:
    """``extent`` steps of ``stride`` as ``(count, step)`` that never carry, fastest first.

    ``None`` where the first carry does not fall on a divisor of the extent.
    """
    if extent == 1:
        return [(1, stride)]
    parts: list[tuple[int, int]] = []
    taken = list(used)
    while extent > 1:
        digits = _digits(stride, flat)
        count = extent
        for (radix, _), digit, below in zip(flat, digits, taken, strict=True):
            if digit:
                count = min(count, (radix - 1 - below) // digit + 1)
        if count <= 1 or extent % count:
            return None
        taken = [below + (count - 1) * digit for below, digit in zip(taken, digits, strict=True)]
        parts.append((count, stride))
        extent, stride = extent // count, stride * count
    return parts


def _digits(value: int, flat: _Flat) -> list[int]:
    """``value`` in the mixed radix of the modes ``flat``; the slowest takes what is left."""
    digits: list[int] = []
    for radix, _ in reversed(flat[1:]):
        digits.append(value % radix)
        value //= radix
    return [value, *reversed(digits)]


def complement(layout: Layout, cotarget: IntTuple | Layout) -> Layout:
    """What ``layout`` leaves out of ``[0, cotarget)``: ``R``, coalesced and ascending.

    Every ``layout(i) + R(j)`` is distinct, and together they cover ``[0, n)``
    for the first ``n >= cotarget`` that the layout's period divides. Modes of
    stride 0 are ignored. Refused where two modes overlap or a stride is not a
    multiple of the finer modes' period.
    """
    bound = cotarget.size() if isinstance(cotarget, Layout) else product(cotarget)
    if not isinstance(bound, int):
        refuse("layout-symbolic", layout=cotarget, symbol=bound)
    _not_empty(layout)
    modes: list[tuple[int, int]] = []
    period = 1
    for stride, extent in sorted((d, s) for s, d in layout.constants() if d and s != 1):
        if stride % period:
            refuse(
                "layout-complement",
                layout=layout,
                extent=extent,
                stride=stride,
                period=period,
                nearest=-(-stride // period) * period,
            )
        modes.append((stride // period, period))
        period = stride * extent
    modes.append((-(-bound // period), period))
    return from_leaves(tuple(reversed(modes))).coalesce()


def right_inverse(layout: Layout) -> Layout:
    """``R`` with ``layout(R(i)) = i`` for ``i`` in ``[0, size(R))``.

    The modes that form an unbroken chain from stride 1 are inverted; of a
    bijective layout that is all of them.
    """
    _not_empty(layout)
    chain: list[tuple[int, int]] = []
    covered = 1
    for stride, extent, weight in _by_stride(layout):
        if stride == covered:
            chain.append((extent, weight))
            covered = stride * extent
    return from_leaves(tuple(reversed(chain))).coalesce()


def left_inverse(layout: Layout) -> Layout:
    """``R`` with ``R(layout(i)) = i`` for every index ``i`` of ``layout``.

    Refused for a layout that is not injective, and where a stride is not a
    multiple of the next finer one.
    """
    _not_empty(layout)
    if not layout.is_injective():
        refuse("layout-not-injective", layout=layout)
    modes: list[tuple[int, int]] = []
    finer, extent, weight = 1, 1, 0
    for stride, following, its_weight in _by_stride(layout):
        # Injective with a multiple of the finer stride: past the finer mode's end as well.
        if stride % finer:
            nearest = max(extent * finer, -(-stride // finer) * finer)
            refuse(
                "layout-left-inverse",
                layout=layout,
                extent=following,
                stride=stride,
                finer=f"{extent}:{finer}",
                nearest=nearest,
            )
        # Offsets between the finer mode's end and this stride are never asked for.
        modes.append((stride // finer, weight))
        finer, extent, weight = stride, following, its_weight
    modes.append((extent, weight))
    return from_leaves(tuple(reversed(modes))).coalesce()


def _by_stride(layout: Layout) -> list[tuple[int, int, int]]:
    """``(stride, extent, index weight)`` of the coalesced modes, finest stride first."""
    flat = layout.coalesce().constants()
    weights: tuple[int, ...] = flatten(compact_strides(tuple(s for s, _ in flat)))
    return sorted((d, s, w) for (s, d), w in zip(flat, weights, strict=True) if s != 1)


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """``(rest, tile)``: the layout's elements grouped by a tile of indices.

    ``tile`` walks the tiler's indices, ``rest`` the tiles. A tuple divides mode
    by mode: ``((rest, tile), (rest, tile), ...)``. Refused where the tiles do
    not cover the layout exactly.
    """
    if isinstance(tiler, tuple):
        return of_modes(tuple(map(logical_divide, _modes(layout, len(tiler), tiler), tiler)))
    whole = layout.size()
    tile = Layout(whole) if tiler is None else Layout(tiler) if isinstance(tiler, int) else tiler
    rest = complement(tile, layout)
    if tile.size() * rest.size() != whole:
        refuse(
            "layout-indivisible",
            layout=layout,
            size=whole,
            tile=tile,
            tile_size=tile.size(),
            nearest=_nearest_divisors(whole, tile.size()),
        )
    return composition(layout, of_modes((rest, tile)))


def _nearest_divisors(whole: int, wanted: int) -> str:
    below = next((n for n in range(min(wanted, whole), 0, -1) if whole % n == 0), 1)
    above = next((n for n in range(wanted, whole + 1) if whole % n == 0), whole)
    return str(below) if below == above else f"{below} or {above}"


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """``((rest, ...), (tile, ...))``: :func:`logical_divide` with like parts gathered."""
    divided = logical_divide(layout, tiler)
    if not isinstance(tiler, tuple):
        return divided
    pairs = [(mode[0], mode[1]) for mode in divided]
    return of_modes((of_modes(tuple(r for r, _ in pairs)), of_modes(tuple(t for _, t in pairs))))


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """``(rest, ..., (tile, ...))``: :func:`zipped_divide` with the rests at the top level."""
    rest, tile = zipped_divide(layout, tiler)
    return of_modes((*rest, tile))


def logical_product(block: Layout, tiler: Tiler) -> Layout:
    """``(repeats, block)``: the block repeated, its copies laid out by the tiler.

    Copies take the room the block leaves free, then what follows it, in the
    order of the tiler's offsets. A tuple multiplies mode by mode.
    """
    if tiler is None:
        return of_modes((Layout(1, 0), block))
    if isinstance(tiler, tuple):
        return of_modes(tuple(map(logical_product, _modes(block, len(tiler), tiler), tiler)))
    repeats = Layout(tiler) if isinstance(tiler, int) else tiler
    free = complement(block, block.size() * repeats.cosize())
    return of_modes((composition(free, repeats), block))


def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """Mode ``i`` is (copies, block) of mode ``i``: whole blocks side by side.

    Both have the same rank; each mode of the result is coalesced.
    """
    pairs = _product_pairs(block, tiler)
    return of_modes(tuple(of_modes((repeat, own)).coalesce() for repeat, own in pairs))


def raked_product(block: Layout, tiler: Layout) -> Layout:
    """Mode ``i`` is (block, copies) of mode ``i``: blocks interleaved element by element.

    Both have the same rank; each mode of the result is coalesced.
    """
    pairs = _product_pairs(block, tiler)
    return of_modes(tuple(of_modes((own, repeat)).coalesce() for repeat, own in pairs))


def _product_pairs(block: Layout, tiler: Layout) -> list[tuple[Layout, Layout]]:
    own = _modes(block, tiler.rank, tiler)
    repeats, _ = logical_product(block, tiler)
    # A lone tiler mode that was split is still one mode.
    copies = tuple(repeats) if is_tuple(tiler.shape) else (repeats,)
    return list(zip(copies, own, strict=True))


def slice_layout(layout: Layout | ComposedLayout, index: tuple[int | slice, ...]) -> ComposedLayout:
    """``L[1:3, :]``, one entry per mode: a layout of the modes kept, with an offset.

    A number picks one coordinate and drops the mode; ``start:stop:step`` keeps
    strides and offset of the whole, as do offset and swizzle of a composed
    layout. Refused where the range is empty or leaves the mode, or straddles
    the parts of a nested one.
    """
    if isinstance(layout, ComposedLayout):
        inner = slice_layout(layout.layout, index)
        return ComposedLayout(layout.swizzle, inner.offset + layout.offset, inner.layout)
    offset: Any = 0
    kept: list[Layout] = []
    for mode, entry in zip(_modes(layout, len(index), index), index, strict=True):
        if isinstance(entry, int):
            offset = mode(entry) + offset
        elif entry == slice(None):
            kept.append(mode)
        else:
            part = _slice_mode(mode, entry)
            offset = part.offset + offset
            kept.append(part.layout)
    return ComposedLayout(None, offset, of_modes(tuple(kept)))


def _slice_mode(mode: Layout, entry: slice) -> ComposedLayout:
    extent = mode.size()
    start = 0 if entry.start is None else entry.start
    stop = extent if entry.stop is None else entry.stop
    step = 1 if entry.step is None else entry.step
    bounds = (start, stop, step)
    if not all(isinstance(n, int) for n in bounds) or step < 1 or not 0 <= start < stop:
        refuse("layout-slice", range=_range_text(entry), extent=extent)
    if isinstance(extent, int) and stop > extent:
        refuse("layout-slice", range=_range_text(entry), extent=extent)
    count = -(-(stop - start) // step)
    if is_tuple(mode.shape):
        return composition(mode, Layout(count, step) + start)
    ((_, stride),) = mode.leaves()
    return ComposedLayout(None, stride * start, Layout(count, stride * step))


def _range_text(entry: slice) -> str:
    parts = ("" if n is None else str(n) for n in (entry.start, entry.stop))
    return ":".join(parts) + ("" if entry.step is None else f":{entry.step}")


def to_cute(layout: Layout) -> Layout:
    """The mirror image: modes reversed at every level, as CuTe writes this function.

    CuTe's offset at an index of the result (first mode fastest) is this
    layout's offset at the same index (last mode fastest). Its own inverse.
    """
    return Layout(_mirror(layout.shape), _mirror(layout.strides))


def _mirror(t: IntTuple) -> IntTuple:
    return tuple(map(_mirror, reversed(t))) if is_tuple(t) else t


def cute_str(layout: Layout) -> str:
    """CuTe's notation in CuTe's order: ``(2,3):(1,8)``."""
    mirrored = to_cute(layout)

    def show(t: IntTuple) -> str:
        return f"({','.join(map(bare, t))})" if is_tuple(t) else f"({t})"

    def bare(t: IntTuple) -> str:
        return show(t) if is_tuple(t) else str(t)

    return f"{show(mirrored.shape)}:{show(mirrored.strides)}"


def _modes(layout: Layout, count: int, by: object) -> tuple[Layout, ...]:
    """The modes of ``layout``, refused unless there are ``count``."""
    if layout.rank != count:
        refuse("layout-profile", layout=layout, rank=layout.rank, by=by, count=count)
    return tuple(layout)


def _not_empty(layout: Layout) -> None:
    if layout.size() == 0:
        refuse("layout-empty", layout=layout)
