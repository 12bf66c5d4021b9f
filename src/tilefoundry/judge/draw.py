"""Random tensors: an independent stream for each, several classes of values.

Every class of floats keeps the scale of standard normal values, so that absolute bounds mean
the same for each:

- ``ordinary``: mostly normal, with zeros of both signs, powers of two, and small values;
- ``wide``: half of the elements smaller by powers of two down to the least subnormal;
- ``integers``: whole numbers from -2 to 2, whose sums and products are exact;
- ``cancelling``: neighbours along one axis that sum to almost nothing;
- ``special``: ordinary, with a NaN and infinities in a few places.

Integers that index an axis are uniform over the axis and hold both its ends; others are drawn
over a range that their type holds.
"""

from __future__ import annotations

import hashlib
import math
from typing import Literal

import numpy as np

from tilefoundry.ir.dtype import DType
from tilefoundry.judge.numbers import FORMS, Array
from tilefoundry.judge.tensor import RawTensor, Shape, size

Values = Literal["ordinary", "wide", "integers", "cancelling", "special"]

SPECIAL_SHARE = 1 / 16
"""Part of the elements that are zeros, powers of two or small."""
PLAIN_INTEGERS = (-1000, 1000)
"""Range of integers that are not known to be indices, where their type is wider."""
BLOCK = 64
"""Elements of a large tensor that stay together where it is shuffled."""
WHOLE = 2
"""Largest magnitude of the values of ``integers``: their deviation is the root of two."""


def stream(seed: int, *names: object) -> np.random.Generator:
    """The generator of one tensor; streams of different ``names`` are independent."""
    digest = hashlib.sha256(repr(names).encode()).digest()
    words = np.frombuffer(digest, "<u4").tolist()
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *words])))


def draw(
    rng: np.random.Generator,
    dtype: DType,
    shape: Shape,
    index: tuple[int, int] | None = None,
    values: Values = "ordinary",
) -> RawTensor:
    """Values of an input; ``index`` is the range (low, past the end) of valid indices."""
    count = size(shape)
    if dtype.kind == "bool":
        return RawTensor.from_values(dtype, shape, rng.integers(0, 2, count))
    if not dtype.is_float:
        low, end = index or _plain_range(dtype)
        drawn = rng.integers(low, max(end, low + 1), count)
        if index is not None and count > 1 and end > low:
            drawn[rng.choice(count, 2, replace=False)] = low, end - 1
        return RawTensor.from_values(dtype, shape, drawn)
    if dtype.name == "f8e8m0":
        return RawTensor.from_values(dtype, shape, np.ldexp(1.0, rng.integers(-4, 5, count)))
    if values == "integers":
        return RawTensor.from_values(dtype, shape, rng.integers(-WHOLE, WHOLE + 1, count) * 1.0)
    floats = _floats(rng, count, dtype)
    if values == "wide":
        _widen(rng, floats, dtype)
    elif values == "cancelling":
        floats = _cancelling(rng, floats.reshape(shape), dtype).reshape(-1)
    elif values == "special":
        _disturb(rng, floats)
    return RawTensor.from_values(dtype, shape, floats)


def shuffled(rng: np.random.Generator, tensor: RawTensor) -> RawTensor:
    """The elements of a tensor of floats in another order (of a large one, blocks of them);
    others as they are.

    Integers may be sorted offsets or indices that mean something by their place.
    """
    if not tensor.dtype.is_float:
        return tensor
    whole = tensor.count // BLOCK * BLOCK
    if whole < BLOCK * BLOCK:
        return RawTensor(tensor.dtype, tensor.shape, rng.permutation(tensor.flat))
    blocks = rng.permutation(tensor.flat[:whole].reshape(-1, BLOCK)).reshape(-1)
    flat = np.concatenate([blocks, tensor.flat[whole:]])
    return RawTensor(tensor.dtype, tensor.shape, np.roll(flat, int(rng.integers(flat.size))))


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


def _normal(rng: np.random.Generator, count: int, dtype: DType) -> Array:
    """Standard normal values in the precision that the type can hold."""
    return rng.standard_normal(count, np.float64 if dtype.bits > 32 else np.float32)


def _floats(rng: np.random.Generator, count: int, dtype: DType) -> Array:
    values = _normal(rng, count, dtype)
    special = np.flatnonzero(rng.random(count, np.float32) < SPECIAL_SHARE)
    sign = rng.choice([-1.0, 1.0], special.size)
    power = np.ldexp(1.0, rng.integers(-6, 3, special.size))
    small = rng.standard_normal(special.size) / 1024
    kinds = rng.integers(0, 3, special.size)
    values[special] = sign * np.choose(kinds, [np.zeros(special.size), power, small])
    return values


def _widen(rng: np.random.Generator, values: Array, dtype: DType) -> None:
    form = FORMS[dtype.name]
    span = (1 << (form.exponent - 1)) - 2 + form.mantissa  # from 1 to the least subnormal
    chosen = np.flatnonzero(rng.random(values.size, np.float32) < 0.5)
    values[chosen] = np.ldexp(values[chosen], -rng.integers(0, span + 1, chosen.size))


def _cancelling(rng: np.random.Generator, values: Array, dtype: DType) -> Array:
    """Every second element along an axis is its neighbour's negative but for its last bits."""
    axes = [axis for axis, extent in enumerate(values.shape) if extent > 1]
    if not axes:
        return values
    along = np.moveaxis(values, axes[int(rng.integers(len(axes)))], -1)
    kept = along[..., 0 : along.shape[-1] // 2 * 2 : 2]
    off = math.ldexp(1.0, -FORMS[dtype.name].mantissa)
    along[..., 1::2] = -kept * (1 + off * rng.integers(0, 4, kept.shape))
    return values


def _disturb(rng: np.random.Generator, values: Array) -> None:
    odd = [math.nan, math.inf, -math.inf, -0.0]
    places = rng.choice(values.size, min(len(odd), values.size // 4), replace=False)
    values[places] = odd[: places.size]
