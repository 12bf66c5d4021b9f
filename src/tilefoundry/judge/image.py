"""A tensor's bytes in a file: its elements where its strides put them, guards around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tilefoundry.judge.numbers import Array, alike
from tilefoundry.judge.tensor import RawTensor

Arrangement = Literal["plain", "offset", "padded", "strided", "transposed"]

GUARD = 4096
"""Bytes before the first element and after the last; they are written by nobody."""
FILL = 0xFF
"""The guards' byte: NaN in every float that has one, so that a result that reads one shows it."""
SHIFT = 256
"""Bytes by which a plain tensor begins after its guard: a view of a larger storage, aligned as
vector instructions, bulk copies and tensor maps need it."""


@dataclass(frozen=True, eq=False)
class Image:
    """The whole file, and where the tensor lies in it (strides in elements)."""

    data: Array
    tensor: RawTensor
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: RawTensor, arrangement: Arrangement = "plain") -> Image:
        """The image of ``tensor`` as a contiguous tensor (``plain``), one whose first element is
        not aligned (``offset``), one with a gap after each row (``padded``), between any two
        elements (``strided``), or with its axes in the other order (``transposed``)."""
        item = tensor.flat.itemsize
        strides = _strides(tensor.shape, arrangement)
        offset = GUARD + (item if arrangement == "offset" else SHIFT)
        reach = sum((e - 1) * s for e, s in zip(tensor.shape, strides, strict=True))
        span = (reach + 1) * item if tensor.count else 0
        data = np.full(offset + span + GUARD, FILL, np.uint8)
        image = cls(data, tensor, offset, strides)
        image.elements[...] = tensor.flat.reshape(tensor.shape)
        return image

    @property
    def elements(self) -> Array:
        """The elements, writable, in the tensor's shape."""
        kind = self.tensor.flat.dtype
        if not self.tensor.count:
            return np.empty(self.tensor.shape, kind)
        flat = self.data[self.offset : self.data.size - GUARD].view(kind)
        strides = [s * kind.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.tensor.shape, strides)

    def place(self, path: str) -> dict[str, Any]:
        """Where a child finds the tensor."""
        return {"path": path, "offset": self.offset, "dtype": self.tensor.dtype.name,
                "shape": list(self.tensor.shape), "strides": list(self.strides)}  # fmt: skip

    def spoiled(self) -> Array:
        """The file with every element overwritten."""
        return np.full_like(self.data, FILL)

    def changed(self, found: Array, wanted: RawTensor | None = None) -> str:
        """What differs in a file read back: ``elements`` (from ``wanted``, where another tensor
        is to lie there now), ``guard``, or nothing."""
        if found.size != self.data.size:
            return "guard"
        if wanted is None and alike(found, self.data):
            return ""
        other = Image(found, self.tensor, self.offset, self.strides)
        want = (wanted or self.tensor).flat.reshape(self.tensor.shape)
        if other.elements.tobytes() != want.tobytes():
            return "elements"
        around, ours = found.copy(), self.data.copy()
        for data in (around, ours):
            Image(data, self.tensor, self.offset, self.strides).elements[...] = 0
        return "" if alike(around, ours) else "guard"


def _strides(shape: tuple[int, ...], arrangement: Arrangement) -> tuple[int, ...]:
    extents = list(shape)
    step = 1
    if arrangement == "transposed":
        return tuple(reversed(_row_major(extents[::-1], 1)))
    if arrangement == "padded" and len(shape) > 1:
        extents[-1] += 3
    elif arrangement in ("padded", "strided"):
        step = 2
    return tuple(_row_major(extents, step))


def _row_major(extents: list[int], step: int) -> list[int]:
    strides: list[int] = []
    for extent in reversed(extents):
        strides.append(step)
        step *= max(extent, 1)
    return strides[::-1]
