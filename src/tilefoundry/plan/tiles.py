"""Layouts proposed for a plan, each as a value and as the author would write it.

In shared memory a tile is panels one swizzle span wide that follow each other: what both the
matrix instructions' canonical layouts and the boxes of tensor copies are. In registers a
fragment is the instruction's, repeated, with the groups of the mesh in front of each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import Nest, ShardLayout
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Swizzle
from tilefoundry.targets.contract.pattern import Env, FragmentPattern, value_of

PLAIN = 0
CHUNK = 16
"""Bytes that a swizzle moves as one."""
SPREADS = (128, 64, 32, CHUNK, PLAIN)
"""Widths of panels in bytes to try, widest swizzle first; a chunk has none; 0 is one panel."""


@dataclass(frozen=True)
class Tile:
    """A tile's type and its layout as text (empty: the default)."""

    type: TensorType
    text: str

    @property
    def flipped(self) -> TensorType:
        """The type of the transpose of a shared tile: the same memory, axes exchanged."""
        layout = self.type.layout
        assert layout is not None and layout.stride is not None
        turned = ShardLayout(layout.shape[::-1], layout.stride[::-1], layout.axes,
                             swizzle=layout.swizzle)  # fmt: skip
        return TensorType(self.type.shape[::-1], self.type.dtype, turned, self.type.storage)


def shared(tile: TensorType, fast: int, span: int, storage: str) -> Tile | None:
    """``tile`` in ``storage``, axis ``fast`` contiguous in panels of ``span`` bytes; None where
    the extents do not divide into them."""
    bits = tile.dtype.bits
    extents = [int(e) for e in tile.shape]  # type: ignore[arg-type]
    width = span * 8 // bits if span else extents[fast]
    slow = extents[1 - fast]
    if not width or extents[fast] % width or (span and slow % 8):
        return None
    panels = extents[fast] // width
    outer: tuple[Nest, Nest] = (width, 1)
    if panels > 1:
        outer = ((panels, width), (slow * width, 1))
    inner: tuple[Nest, Nest] = (slow, width)
    first, second = (outer, inner) if fast == 0 else (inner, outer)
    swizzle = Swizzle((span // CHUNK).bit_length() - 1, 4, 3) if span > CHUNK else None
    count = 3 if panels > 1 else 2
    layout = ShardLayout((first[0], second[0]), (first[1], second[1]), (None,) * count,
                         swizzle=swizzle)  # fmt: skip
    type = TensorType(tile.shape, tile.dtype, layout, storage)
    return Tile(type, _shared_text(layout, fast, panels))


def _shared_text(layout: ShardLayout, fast: int, panels: int) -> str:
    tail = f" | {layout.swizzle}" if layout.swizzle is not None else ""
    compact = fast == 1 and panels == 1
    if compact:
        return f"Layout({_text(layout.shape)}){tail}" if tail else ""
    assert layout.stride is not None
    return f"Layout({_text(layout.shape)}, {_text(layout.stride)}){tail}"


def _text(nest: object) -> str:
    if isinstance(nest, tuple):
        return f"({', '.join(_text(x) for x in nest)})"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(nest)


@dataclass(frozen=True)
class Cut:
    """Who takes which part of one axis: the group axis that splits it (None: nobody)."""

    axis: Axis | None

    @property
    def parts(self) -> int:
        return self.axis.extent if self.axis is not None else 1


def fragment(
    pattern: FragmentPattern,
    env: Env,
    tile: TensorType,
    cuts: Sequence[Cut],
    atom: Sequence[Axis],
    binding: str,
    storage: str,
) -> Tile | None:
    """The tile over the units of a mesh: per axis the group's part, the repeats, then the
    instruction's modes; None where an axis does not divide."""
    sizes = [value_of(x, env) for x in pattern.shape]
    modes: list[int] = []
    axes: list[Axis | None] = []
    halves = (range(pattern.rows), range(pattern.rows, len(sizes)))
    for extent, cut, half in zip(tile.shape, cuts, halves, strict=True):
        held = 1
        for mode in half:
            held *= sizes[mode]
        whole = held * cut.parts
        if not isinstance(extent, int) or extent % whole:
            return None
        lead: list[tuple[int, Axis | None]] = [(cut.parts, cut.axis)] if cut.axis else []
        if extent // whole > 1:
            lead.append((extent // whole, None))
        for size, axis in lead:
            modes.append(size)
            axes.append(axis)
        for mode in half:
            bound = pattern.axes[mode]
            if sizes[mode] > 1 or bound is not None:
                modes.append(sizes[mode])
                axes.append(None if bound is None else atom[bound])
    words = [f"{m} @ {binding}.{a.name}" if a else str(m) for m, a in zip(modes, axes, strict=True)]
    layout = ShardLayout(tuple(modes), None, tuple(axes))
    return Tile(TensorType(tile.shape, tile.dtype, layout, storage), f"({', '.join(words)})")


def words_of(type: TensorType) -> int:
    """32-bit registers of one unit's part, small elements packed."""
    bits = type.bits(type.local_shape)
    assert isinstance(bits, int)
    return -(-bits // 32)


def contiguous(tile: TensorType, strides: Sequence[object]) -> int:
    """The axis along which neighbours of the tile are neighbours in memory (the last if none
    or several are)."""
    found = [n for n, s in enumerate(strides) if s == 1 and tile.shape[n] != 1]
    return found[0] if len(found) == 1 else tile.rank - 1
