"""Copies between memory and register files made of rows: each row moves as contiguous bytes.

Tile registers (16 rows of 64 bytes) and Apple's X, Y and Z (rows of 64 bytes) are filled and
stored a row at a time; which memory belongs to a row follows from the two places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from tilefoundry.ir.expr import Dim
from tilefoundry.targets.contract.copy import Copy, Side, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place


@dataclass(frozen=True)
class Row:
    """One row of the register file: where it starts there (bytes from the buffer's start),
    and the offset in memory (elements from the tile's start) of its first element."""

    register: int
    memory: int


@dataclass(frozen=True)
class Rows:
    """A copy as rows of ``size`` bytes, in the order of the register file.

    ``base`` is where the tile starts in memory, in elements of the buffer. ``tiles`` groups
    rows whose memory advances by one ``stride`` (elements) from row to row, up to ``height``
    of them: what one tile instruction moves.
    """

    size: int
    rows: tuple[Row, ...]
    base: Dim
    tiles: tuple[tuple[int, int], ...]
    """(first row, stride) of each group of ``height`` rows."""
    height: int

    @property
    def repeat(self) -> tuple[int, ...]:
        return (len(self.tiles),)

    def text(self) -> str:
        return f"rows={len(self.rows)} row={self.size}B issues={len(self.tiles)}"


def rows_plan(
    files: Sequence[str], size: int, height: int = 1, width: int = 1
) -> Callable[[Copy], Rows | Unmet]:
    """The plan of copies whose register side lives in one of ``files``: rows of ``size``
    bytes, ``height`` at a time. Of a row, ``width`` elements that follow each other in
    memory lie in ``width`` neighbouring rows (1: in the row itself)."""

    def plan(copy: Copy) -> Rows | Unmet:
        bad = same_bits(copy.source, copy.target)
        if bad is not None:
            return bad
        inside, outside = copy.source, copy.target
        if inside.type.storage not in files:
            inside, outside = outside, inside
        return _rows(copy.shape, inside, outside, size, height, width)

    return plan


def _rows(
    shape: tuple[int, ...], inside: Side, outside: Side, size: int, height: int, width: int
) -> Rows | Unmet:
    file, memory = inside.place(), outside.place()
    for found in (file, memory):
        if isinstance(found, Unmet):
            return found
    assert isinstance(file, Place) and isinstance(memory, Place)
    bits = memory.bits
    per = size * 8 // bits
    at: dict[int, int] = {}
    for crd in product(*(range(e) for e in shape)):
        at[_linear(file, crd)] = _linear(memory, crd)
    order = sorted(at)
    if order != list(range(len(order))) or len(order) % (per * width):
        got = f"{len(order) * bits // 8} bytes in {inside.type}"
        return Unmet("shape", f"whole rows of {size} bytes", got, _rows_fix(shape, per))
    rows: list[Row] = []
    for group in range(0, len(order), per * width):
        for part in range(width):
            start = group + part * per
            want = at[_nth(group, part * per, per, width)]
            rows.append(Row(start * bits // 8, want))
            for i in range(per):
                here = at[_nth(group, part * per + i, per, width)]
                if here != want + i:
                    return _broken(file, outside, size, here - at[_nth(group, part * per + i - 1,
                                   per, width)])  # fmt: skip
    if len(rows) % height:
        got = f"{len(rows)} rows"
        return Unmet("shape", f"a multiple of {height} rows", got, _rows_fix(shape, per * height))
    tiles: list[tuple[int, int]] = []
    for first in range(0, len(rows), height):
        inner = [r.memory for r in rows[first : first + height]]
        steps = {b - a for a, b in pairwise(inner)} or {0}
        if len(steps) > 1:
            far = ", ".join(map(str, sorted(steps)))
            return Unmet("layout", f"one distance between the {height} rows of a tile",
                         f"distances of {far} elements", _pack(file))  # fmt: skip
        tiles.append((first, steps.pop()))
    return Rows(size, tuple(rows), memory.base, tuple(tiles), height)


def _nth(group: int, index: int, per: int, width: int) -> int:
    """The element of the register file that is the ``index``-th of a group in memory."""
    return group + index % width * per + index // width


def _linear(place: Place, crd: tuple[int, ...]) -> int:
    """The offset from the tile's start, in elements."""
    total: Dim = 0
    for axis, i in enumerate(crd):
        total = total + place.along(axis, i)
    assert isinstance(total, int)
    return total


def _broken(file: Place, outside: Side, size: int, apart: int) -> Unmet:
    got = f"neighbours of a row {apart} elements apart in {outside.type}"
    return Unmet("layout", f"{size} contiguous bytes of memory for each row", got, _pack(file))


def _pack(file: Place) -> str:
    """The reshard that makes memory contiguous in the order of the registers."""
    shape = tuple(tuple(e for e, _ in axis) or (1,) for axis in file.modes)
    steps = tuple(tuple(s for _, s in axis) or (0,) for axis in file.modes)
    return f'pack it first: tf.reshard(..., ({_text(shape)}, {_text(steps)}), "gmem")'


def _text(nest: Sequence[Sequence[Dim]]) -> str:
    tops = [str(x[0]) if len(x) == 1 else f"({', '.join(map(str, x))})" for x in nest]
    return f"({', '.join(tops)}{',' if len(tops) == 1 else ''})"


def _rows_fix(shape: tuple[int, ...], per: int) -> str:
    last = shape[-1] if shape else 1
    below = last // per * per
    return f"a tile whose rows are a multiple of {per} elements: {below or per} or {below + per}"
