"""Random tensors: an independent stream for each, several classes of values.

Floats are mostly standard normal, with zeros of both signs, powers of two, and small values
among them. Integers that index an axis are uniform over the axis; others over a range that
their type holds.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tilefoundry.ir.dtype import DType
from tilefoundry.judge.numbers import Array
from tilefoundry.judge.tensor import RawTensor, Shape, size

SPECIAL_SHARE = 1 / 16
"""Part of the elements that are zeros, powers of two or small."""
PLAIN_INTEGERS = (-1000, 1000)
"""Range of integers that are not known to be indices, where their type is wider."""


def stream(seed: int, *names: object) -> np.random.Generator:
    """The generator of one tensor; streams of different ``names`` are independent."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    words = np.frombuffer(digest, "<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))


def draw(
    rng: np.random.Generator, dtype: DType, shape: Shape, index: tuple[int, int] | None = None
) -> RawTensor:
    """Values of an input; ``index`` is the range (low, past the end) of valid indices."""
    count = size(shape)
    if dtype.kind == "bool":
        return RawTensor.from_values(dtype, shape, rng.integers(0, 2, count))
    if not dtype.is_float:
        low, end = index or _plain_range(dtype)
        return RawTensor.from_values(dtype, shape, rng.integers(low, max(end, low + 1), count))
    if dtype.name == "f8e8m0":
        return RawTensor.from_values(dtype, shape, np.ldexp(1.0, rng.integers(-4, 5, count)))
    return RawTensor.from_values(dtype, shape, _floats(rng, count))


def draw_weight(rng: np.random.Generator, dtype: DType, shape: Shape) -> RawTensor:
    """Values of a weight: normal, scaled by the last axis so that products keep their size;
    vectors (norm weights) lie around one."""
    if not dtype.is_float or dtype.name == "f8e8m0":
        return draw(rng, dtype, shape)
    values = rng.standard_normal(size(shape))
    values = 1 + values / 8 if len(shape) < 2 else values / np.sqrt(max(shape[-1], 1))
    return RawTensor.from_values(dtype, shape, values)


def _plain_range(dtype: DType) -> tuple[int, int]:
    low, high = PLAIN_INTEGERS
    if dtype.kind == "uint":
        return 0, 1 << dtype.bits
    return (-(1 << 7), 1 << 7) if dtype.bits == 8 else (low, high + 1)


def _floats(rng: np.random.Generator, count: int) -> Array:
    values = rng.standard_normal(count)
    special = np.flatnonzero(rng.random(count) < SPECIAL_SHARE)
    sign = rng.choice([-1.0, 1.0], special.size)
    power = np.ldexp(1.0, rng.integers(-6, 3, special.size))
    small = rng.standard_normal(special.size) / 1024
    kinds = rng.integers(0, 3, special.size)
    values[special] = sign * np.choose(kinds, [np.zeros(special.size), power, small])
    return values
