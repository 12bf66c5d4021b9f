"""Tensors as the parent holds them: element type, shape, raw bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilefoundry.ir.dtype import DType
from tilefoundry.judge.numbers import Array, decode, encode, finite, parts, stored

Shape = tuple[int, ...]


def size(shape: Shape) -> int:
    """Elements of a tensor of ``shape``."""
    total = 1
    for extent in shape:
        total *= extent
    return total


def spell(shape: Shape) -> str:
    """``1x4096x2048``; ``scalar`` without axes."""
    return "x".join(map(str, shape)) or "scalar"


def place(path: str, offset: int, dtype: str, shape: Shape) -> dict[str, Any]:
    """Where a tensor's bytes lie, as a child is told."""
    return {"path": path, "offset": offset, "dtype": dtype, "shape": list(shape)}


@dataclass(frozen=True, eq=False)
class RawTensor:
    """Stored elements, flat and row-major, with the shape they have."""

    dtype: DType
    shape: Shape
    flat: Array
    """One axis, of the numpy dtype that stores ``dtype``."""

    @classmethod
    def from_bytes(cls, dtype: DType, shape: Shape, data: bytes | memoryview) -> RawTensor:
        return cls(dtype, shape, np.frombuffer(data, stored(dtype)))

    @classmethod
    def from_values(cls, dtype: DType, shape: Shape, values: Array) -> RawTensor:
        """The tensor of ``dtype`` nearest to ``values``."""
        return cls(dtype, shape, encode(values.reshape(-1), dtype))

    @property
    def count(self) -> int:
        return self.flat.size

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes

    @property
    def view(self) -> memoryview:
        """The raw bytes."""
        return memoryview(np.ascontiguousarray(self.flat).view(np.uint8).data)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.view).hexdigest()

    @cached_property
    def is_finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not self.dtype.is_float or all(
            finite(self.flat[at:stop], self.dtype).all() for at, stop in parts(self.count)
        )

    def values(self, start: int = 0, stop: int | None = None) -> Array:
        """Elements as float64, or as int64 where they are integers."""
        return decode(self.flat[start:stop], self.dtype)

    def same(self, other: RawTensor) -> bool:
        """Whether every element has the same value (of the two zeros either)."""
        a, b = self.values(), other.values()
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            return bool(np.array_equal(a, b, equal_nan=True))
        return bool(np.array_equal(a, b))
