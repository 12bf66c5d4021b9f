"""cp.async.bulk.tensor (TMA): a box of a global tensor to or from shared memory.

PTX ISA, "Tensors" and "cp.async.bulk.tensor"; CUDA Driver API, cuTensorMapEncodeTiled. The
tensor map is derived: the tile's modes in shared memory, by ascending stride, are the box,
innermost first; what they step over in global memory are the map's dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import gcd

from tilefoundry.ir.expr import Dim, bounds, multiple_of
from tilefoundry.targets.contract.copy import Copy, CopyInstr, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.match import SPANS
from tilefoundry.targets.contract.place import Place, Window, buffer_modes, panels

MAX_RANK, MAX_BOX, MAX_STRIDE = 5, 256, 1 << 40
MAX_EXTENT = 1 << 31
"""Of a dimension: coordinates are signed words of 32 bits."""
SMEM_ALIGN = 128
WIDTHS = (8, 16, 32, 64)


@dataclass(frozen=True)
class MapDim:
    """One dimension of the map: steps of ``inner`` elements along axis ``axis`` of the global
    tensor, ``extent`` of them, ``stride`` bytes apart; ``box`` of them in one issue."""

    axis: int
    inner: int
    extent: Dim
    stride: Dim
    box: int


@dataclass(frozen=True)
class Piece:
    """One issue: its place in the tile's buffer in bytes, what it adds to each coordinate of
    the map, and its number along each axis of the tile."""

    smem: int
    coordinates: tuple[int, ...]
    turn: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """A tensor map and the issues that move one tile by it. ``swizzle`` is the span in bytes
    (0: none); ``bytes`` what one issue transfers, clipped or not; ``align`` of the buffer."""

    bits: int
    maps: tuple[MapDim, ...]
    swizzle: int
    issues: tuple[Piece, ...]
    repeat: tuple[int, ...]
    align: int

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(d.extent for d in self.maps)

    @property
    def strides_bytes(self) -> tuple[Dim, ...]:
        """Of dimensions 1 and up; dimension 0 is contiguous."""
        return tuple(d.stride for d in self.maps[1:])

    @property
    def box(self) -> tuple[int, ...]:
        return tuple(d.box for d in self.maps)

    @property
    def element_strides(self) -> tuple[int, ...]:
        return (1,) * len(self.maps)

    @property
    def bytes(self) -> int:
        total = self.bits // 8
        for d in self.maps:
            total *= d.box
        return total

    def coordinates(self, starts: Sequence[Dim]) -> tuple[Dim, ...]:
        """The map's coordinates of the element at ``starts`` of the global tensor."""
        out: list[Dim] = []
        for d in self.maps:
            wider = [o.inner for o in self.maps if o.axis == d.axis and o.inner > d.inner]
            at = starts[d.axis] // d.inner
            out.append(at % (min(wider) // d.inner) if wider else at)
        return tuple(out)

    def ordered(self, order: Sequence[int] | None = None) -> tuple[Piece, ...]:
        """The issues nested over the tile's axes, the first of ``order`` outermost."""
        if order is None:
            return self.issues
        return tuple(sorted(self.issues, key=lambda p: tuple(p.turn[a] for a in order)))

    def text(self) -> str:
        box = "x".join(map(str, self.box))
        return f"box={box} swizzle={self.swizzle}B issues={len(self.issues)}"


@dataclass
class _Mode:
    """A mode of the tile in shared memory: its strides there and along the tile's axis."""

    extent: int
    smem: int
    axis: int
    inner: int


def tensor_map(tile: Place, window: Window) -> TensorMap | Unmet:
    """The map for a tile in shared memory and the window of a global tensor that it mirrors.

    Refuses by clause: ``dtype``, ``swizzle``, ``layout`` (of either side), ``stride``, ``box``,
    ``rank``, ``extent``, ``alignment``.
    """
    if tile.bits not in WIDTHS:
        return Unmet("dtype", "elements of 1, 2, 4 or 8 bytes", f"{tile.bits} bits")
    span = _span(tile)
    if isinstance(span, Unmet):
        return span
    bad = _global_form(window)
    if bad is not None:
        return bad
    steps, whole = _strides(window), window.whole
    modes = _smem_modes(tile)
    if isinstance(modes, Unmet):
        return modes
    fast = modes[0] if modes else _Mode(1, 1, 0, 1)
    if modes and (fast.smem != 1 or fast.inner != 1 or steps[fast.axis] != 1):
        return _not_contiguous(tile, steps)
    dims: list[MapDim] = []
    rest: list[_Mode] = []
    # what the tile has no extent along, but the window's start may move along
    fixed = [
        n
        for n, axis in enumerate(window.axes)
        if whole.shape[n] != 1 and (axis is None or tile.shape[axis] == 1)
    ]
    dense = 1
    queue = list(modes)
    while queue and not rest:
        mode = queue.pop(0)
        limit = span * 8 // tile.bits if span and not dims else MAX_BOX
        box = _largest_divisor(mode.extent, limit)
        target = _target(window, mode.axis)
        fresh = [d for d in dims if d.axis == target]
        exact = (mode.inner == 1 and not fresh) or _exact(window, target, mode.inner)
        if mode.smem != dense or not exact or not _room(mode, dims, modes, window, len(fixed)):
            rest = [mode, *queue]
            break
        stride = steps[mode.axis] * mode.inner * tile.bits // 8
        dims.append(MapDim(target, mode.inner, 0, stride, box))
        dense *= box
        if box < mode.extent:
            left = _Mode(mode.extent // box, mode.smem * box, mode.axis, mode.inner * box)
            if queue:
                queue.insert(0, left)
            else:
                rest = [left]
    dims += _single(window, dims, tile.bits, fixed)
    dims = [_extent(d, dims, whole.shape[d.axis]) for d in dims]
    return _checked(tile, window, dims, rest, span)


def _target(window: Window, axis: int) -> int:
    """The global axis that the tile's axis runs along."""
    found = window.along(axis)
    assert found is not None
    return found


def _span(tile: Place) -> int | Unmet:
    swizzle = tile.swizzle
    key = None if swizzle is None else (swizzle.B, swizzle.M, swizzle.S)
    if key is not None and key not in SPANS:
        want = "Swizzle(1, 4, 3), (2, 4, 3), (3, 4, 3) or none"
        return Unmet("swizzle", want, f"{swizzle}", "Swizzle(3, 4, 3)")
    return 0 if key is None else SPANS[key]


def _global_form(window: Window) -> Unmet | None:
    whole = window.whole
    if whole.layout is not None and whole.layout.swizzle is not None:
        return Unmet("layout", "a global tensor without swizzle", f"{whole}")
    for n, modes in enumerate(buffer_modes(whole)):
        if len(modes) > 1:
            return Unmet("layout", "one stride for each axis of the global tensor",
                         f"axis {n} of {whole} has modes {modes}")  # fmt: skip
        if window.step(n) != 1:
            got = f"a step of {window.step(n)} along axis {n}"
            return Unmet("layout", "neighbours in the global tensor", got, "slice without a step")
    return None


def _strides(window: Window) -> dict[int, Dim]:
    """Stride in the global tensor, in elements, of each axis of the tile."""
    parts = buffer_modes(window.whole)
    return {
        axis: (parts[n][0][1] if parts[n] else 1)
        for n, axis in enumerate(window.axes)
        if axis is not None
    }


def _smem_modes(tile: Place) -> list[_Mode] | Unmet:
    out: list[_Mode] = []
    for axis, modes in enumerate(tile.modes):
        inner = 1
        for extent, stride in reversed(modes):
            if extent != 1:
                if not isinstance(stride, int):
                    return Unmet("layout", "strides that are numbers", f"a stride of {stride}")
                out.append(_Mode(extent, stride, axis, inner))
            inner *= extent
    return sorted(out, key=lambda m: m.smem)


def _not_contiguous(tile: Place, steps: dict[int, Dim]) -> Unmet:
    unit = next((axis for axis, step in steps.items() if step == 1), None)
    got = "the neighbour in shared memory is not the neighbour in global memory"
    if unit is None or len(tile.shape) != 2:
        return Unmet("layout", "one axis contiguous on both sides", got)
    fix = panels(tile.shape, tile.bits, unit)
    return Unmet("layout", f"axis {unit} contiguous in shared memory", got, fix)


def _largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` up to ``limit``, multiples of 8 first: rows of a
    swizzle repeat every eight."""
    found = [d for d in range(1, min(extent, limit) + 1) if extent % d == 0]
    return max(found, key=lambda d: (d == extent, d % 8 == 0, d))


def _exact(window: Window, axis: int, inner: int) -> bool:
    """Whether an axis may be cut into blocks of ``inner``: no block is ragged, and the
    window starts at one."""
    start, extent = window.starts[axis], window.whole.shape[axis]
    return multiple_of(start) % inner == 0 and multiple_of(extent) % inner == 0


def _room(
    mode: _Mode, dims: Sequence[MapDim], modes: Sequence[_Mode], window: Window, fixed: int
) -> bool:
    """Whether another dimension leaves room for one along each axis that has none yet."""
    begun = {d.axis for d in dims if d.inner == 1}
    if mode.inner == 1:
        begun.add(window.along(mode.axis) or 0)
    waiting = {window.along(m.axis) for m in modes} - begun
    return len(dims) + 1 + fixed + len(waiting) <= MAX_RANK


def _single(
    window: Window, dims: Sequence[MapDim], bits: int, fixed: Sequence[int]
) -> list[MapDim]:
    """Dimensions of box 1: what only issues step over, and indices that the tile has not."""
    parts = buffer_modes(window.whole)
    begun = {d.axis for d in dims if d.inner == 1}
    moved = {
        n for n, a in enumerate(window.axes) if a is not None and window.whole.shape[n] != 1
    } - begun  # fmt: skip
    out: list[MapDim] = []
    for n in (*sorted(moved - set(fixed)), *fixed):
        stride = parts[n][0][1] if parts[n] else 1
        out.append(MapDim(n, 1, 0, stride * bits // 8, 1))
    return out


def _extent(d: MapDim, dims: Sequence[MapDim], whole: Dim) -> MapDim:
    wider = [o.inner for o in dims if o.axis == d.axis and o.inner > d.inner]
    extent = min(wider) // d.inner if wider else -(-whole // d.inner)
    return MapDim(d.axis, d.inner, extent, d.stride, d.box)


def _checked(
    tile: Place, window: Window, dims: Sequence[MapDim], rest: Sequence[_Mode], span: int
) -> TensorMap | Unmet:
    """The demands of the driver and the ISA on the map that was found."""
    if len(dims) > MAX_RANK:
        return Unmet("rank", f"at most {MAX_RANK} dimensions", f"{len(dims)}",
                     "slice the tile so that fewer axes change")  # fmt: skip
    inner = dims[0].box * tile.bits // 8 if dims else tile.bits // 8
    fast = window.axes[dims[0].axis] if dims else None
    fix = panels(tile.shape, tile.bits, fast or 0) if len(tile.shape) == 2 else ""
    if inner % 16:
        return Unmet(
            "box", "an innermost run that is a multiple of 16 bytes", f"{inner} bytes", fix
        )
    if span and inner != span:
        return Unmet("box", f"an innermost run of the swizzle's span, {span} bytes",
                     f"{inner} bytes", fix)  # fmt: skip
    for d in dims:
        if isinstance(d.extent, int) and d.extent > MAX_EXTENT:
            return Unmet("extent", "at most 2^31 along each dimension",
                         f"{d.extent} along axis {d.axis} of {window.whole}",
                         "reshape it to two axes")  # fmt: skip
    for d in dims[1:]:
        if multiple_of(d.stride) % 16 or bounds(d.stride)[1] >= MAX_STRIDE:
            got = f"axis {d.axis} of {window.whole} steps {d.stride} bytes"
            count = 128 // gcd(128, tile.bits)
            fix = f"pad the global tensor's rows to a multiple of {count} elements"
            if not isinstance(d.stride, int):
                fix += f", and say so of an open extent: {count} * n with n = DimVar"
            return Unmet("stride", "global strides that are multiples of 16 bytes, below 2^40",
                         got, fix)  # fmt: skip
    align = max(SMEM_ALIGN, 8 * span)
    base = tile.base
    issues = _issues(tile, window, dims, rest, base if isinstance(base, int) else 0)
    if not isinstance(base, int):
        aligned = multiple_of(base) * tile.bits // 8 % align == 0
    else:
        aligned = True
    if not aligned or any(p.smem % align for p in issues):
        worst = next((p.smem for p in issues if p.smem % align), 0)
        return Unmet("alignment", f"each box at a multiple of {align} bytes in shared memory",
                     f"one at byte {worst}" if worst else f"a window at {base}", fix)  # fmt: skip
    repeat = [1] * len(tile.shape)
    for mode in rest:
        repeat[mode.axis] *= mode.extent
    return TensorMap(tile.bits, tuple(dims), span, tuple(issues), tuple(repeat), align)


def _issues(
    tile: Place, window: Window, dims: Sequence[MapDim], rest: Sequence[_Mode], base: int
) -> list[Piece]:
    """Every box of the tile, later modes outermost."""
    out: list[Piece] = []
    outward = list(reversed(rest))
    for turn in cartesian(*(range(m.extent) for m in outward)):
        smem = base + sum(t * m.smem for t, m in zip(turn, outward, strict=True))
        moved = [0] * len(window.axes)
        number = [0] * len(tile.shape)
        for t, m in sorted(zip(turn, outward, strict=True), key=lambda x: -x[1].inner):
            moved[_target(window, m.axis)] += t * m.inner
            number[m.axis] = number[m.axis] * m.extent + t
        at = TensorMap(tile.bits, tuple(dims), 0, (), (), 0).coordinates(moved)
        out.append(Piece(smem * tile.bits // 8, tuple(int(x) for x in at), tuple(number)))  # type: ignore[arg-type]
    return out


def plan(copy: Copy) -> TensorMap | Unmet:
    """A load or a store of one tile."""
    bad = same_bits(copy.source, copy.target)
    if bad is not None:
        return bad
    near, far = copy.source, copy.target
    if near.type.storage != "smem":
        near, far = far, near
    found = near.place()
    if isinstance(found, Unmet):
        return found
    return tensor_map(found, far.window or Window.all_of(far.type))


COPY_ASYNC_TENSOR = CopyInstr(
    "copy_async_tensor",
    (("gmem", "smem"), ("smem", "gmem")),
    21,
    plan,
    (
        "one axis contiguous on both sides; element 1, 2, 4 or 8 bytes",
        "smem modes by ascending stride are the box: at most 5 dimensions of at most 256",
        "innermost run a multiple of 16 bytes, with a swizzle exactly its span of 32, 64 or 128",
        "global strides multiples of 16 bytes below 2^40, base a multiple of 16",
        "boxes in smem at multiples of 128 bytes, 256, 512, 1024 for spans of 32, 64, 128",
        "a tile beyond one box is several issues",
        "a load that is the same for CTAs of a cluster is divided among them, and delivered to all",
    ),
    "cp.async.bulk.tensor",
    ("mbarrier bytes", "bulk group"),
    "async",
    "PTX ISA, cp.async.bulk.tensor",
    SMEM_ALIGN,
    latency="latency.tensor_copy",
    multicast=True,
)
CONTRACTS = (COPY_ASYNC_TENSOR,)
