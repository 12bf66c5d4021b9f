"""Element types in numpy: raw bytes to values and back, spacings, distances in ulp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.ir.dtype import DType

Array = np.ndarray[Any, np.dtype[Any]]

STORED: dict[str, str] = {
    "f64": "<f8",
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "fp8e4m3": "u1",
    "fp8e5m2": "u1",
    "f8e8m0": "u1",
    "i64": "<i8",
    "i32": "<i4",
    "i16": "<i2",
    "i8": "i1",
    "u8": "u1",
    "bool": "u1",
}
"""How numpy holds each element type; a float that numpy lacks is held as its bits."""
PART = 1 << 16
"""Elements worked on at a time (512 KiB of float64): what is made of them stays in the caches,
in memory that is there already."""


@dataclass(frozen=True)
class FloatForm:
    """Bits of a float's exponent and mantissa; ``infinite``: its top exponent holds infinity."""

    exponent: int
    mantissa: int
    signed: bool = True
    infinite: bool = True


FORMS = {
    "f64": FloatForm(11, 52),
    "f32": FloatForm(8, 23),
    "f16": FloatForm(5, 10),
    "bf16": FloatForm(8, 7),
    "fp8e5m2": FloatForm(5, 2),
    "fp8e4m3": FloatForm(4, 3, infinite=False),
    "f8e8m0": FloatForm(8, 0, signed=False, infinite=False),
}


def stored(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype of the raw elements; refuses element types that share a byte."""
    if dtype.name not in STORED:
        refuse("check-dtype", None, dtype=dtype, known=" ".join(STORED))
    return np.dtype(STORED[dtype.name])


def spacing(dtype: DType) -> float:
    """Distance of 1 to the next larger value: 2^-10 for f16, 2^-7 for bf16."""
    return 2.0 ** -FORMS[dtype.name].mantissa


def decode(raw: Array, dtype: DType) -> Array:
    """Values of stored elements: float64 of floats, int64 of integers and truth values."""
    if not dtype.is_float:
        return raw.astype(np.int64)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        if dtype.name == "bf16":
            return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if dtype.bits == 8:
            return _byte_values(dtype.name)[raw]
        return raw.astype(np.float64)


def finite(raw: Array, dtype: DType) -> Array:
    """Which stored elements of a float are neither NaN nor infinite."""
    if dtype.bits == 8:
        return np.isfinite(_byte_values(dtype.name))[raw]
    form = FORMS[dtype.name]
    bits = raw.view(f"u{raw.dtype.itemsize}")
    top = bits.dtype.type(((1 << form.exponent) - 1) << form.mantissa)
    return (bits & top) != top


def coarsened(raw: Array, dtype: DType) -> Array | None:
    """Stored elements of f16 and f32 rounded to the 8 bits of bf16, of f64 to the 24 of f32;
    None for types that have no more bits than that."""
    form = FORMS.get(dtype.name)
    kept = 23 if dtype.name == "f64" else 7
    if form is None or form.mantissa <= kept:
        return None
    found = raw.view(f"u{raw.dtype.itemsize}").copy()
    drop = form.mantissa - kept
    one, low = found.dtype.type(1), found.dtype.type((1 << drop) - 1)
    for at, stop in parts(raw.size):
        bits = found[at:stop]
        rounded = (bits + (low >> one) + ((bits >> drop) & one)) & ~low
        np.copyto(bits, rounded, where=finite(raw[at:stop], dtype))
    return found.view(raw.dtype)


def parts(count: int, step: int = PART) -> Iterator[tuple[int, int]]:
    """Ranges that make up ``count`` elements, ``step`` in each."""
    return ((at, min(at + step, count)) for at in range(0, count, step))


def alike(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays hold the same bytes; numpy compares words fastest."""
    if a.nbytes != b.nbytes:
        return False
    bytes_a, bytes_b = (x.reshape(-1).view(np.uint8) for x in (a, b))
    words = a.nbytes // 8 * 8
    return bool(
        np.array_equal(bytes_a[:words].view(np.uint64), bytes_b[:words].view(np.uint64))
        and np.array_equal(bytes_a[words:], bytes_b[words:])
    )


def spell_value(value: float | int, dtype: DType) -> str:
    """The fewest digits that name ``value`` among those of its type (bf16 and 8-bit floats:
    among those of f32, which holds them)."""
    if isinstance(value, int):
        return str(value)
    kind = np.dtype(STORED[dtype.name])
    return str((kind if kind.kind == "f" else np.dtype("<f4")).type(value)).removesuffix(".0")


def encode(values: Array, dtype: DType) -> Array:
    """Stored elements nearest to ``values``; ties to even, 8-bit floats saturate."""
    if not dtype.is_float:
        kind = stored(dtype)
        if dtype.kind == "bool":
            return (values != 0).astype(kind)
        bounds = np.iinfo(kind)
        whole = np.rint(values) if values.dtype.kind == "f" else values
        return np.clip(whole, bounds.min, bounds.max).astype(kind)
    with np.errstate(over="ignore"):
        if dtype.name == "bf16":
            bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
            rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
        if dtype.bits == 8:
            return _nearest_byte(values, dtype.name)
        return values.astype(stored(dtype))


@cache
def _byte_values(name: str) -> Array:
    """The value of each byte of an 8-bit float (OCP 8-bit formats; e8m0: 2^(b - 127))."""
    form = FORMS[name]
    codes = np.arange(256)
    if name == "f8e8m0":
        return np.where(codes == 255, np.nan, np.ldexp(1.0, codes - 127))
    sign = np.where(codes >= 128, -1.0, 1.0)
    exponent = (codes & 0x7F) >> form.mantissa
    mantissa = codes & ((1 << form.mantissa) - 1)
    bias = (1 << (form.exponent - 1)) - 1
    normal = np.ldexp(1.0 + mantissa / (1 << form.mantissa), exponent - bias)
    tiny = np.ldexp(mantissa / (1 << form.mantissa), 1 - bias)
    values = sign * np.where(exponent == 0, tiny, normal)
    if form.infinite:
        top = exponent == (1 << form.exponent) - 1
        values = np.where(top, np.where(mantissa == 0, sign * np.inf, np.nan), values)
    else:
        values = np.where((codes & 0x7F) == 0x7F, np.nan, values)
    return values


def _nearest_byte(values: Array, name: str) -> Array:
    table = _byte_values(name)
    known = np.flatnonzero(np.isfinite(table))
    # Of the two zeros keep the positive one; -0 is written where the sign says so.
    known = known[~((table[known] == 0) & (known >= 128))]
    known = known[np.argsort(table[known], kind="stable")]
    sorted_values = table[known]
    above = np.clip(np.searchsorted(sorted_values, values), 1, len(known) - 1)
    low, high = sorted_values[above - 1], sorted_values[above]
    odd = (known[above - 1] & 1) == 1
    with np.errstate(invalid="ignore"):
        up = (values - low > high - values) | ((values - low == high - values) & odd)
    codes = np.where(up, known[above], known[above - 1]).astype(np.uint8)
    return np.where(np.isnan(values), np.uint8(0x7F if name != "f8e8m0" else 0xFF), codes)


def ulp_distance(a: Array, b: Array, dtype: DType) -> Array:
    """How many representable values apart stored elements are, as float64; both zeros are one."""
    low, high = (_ordered(x, dtype) for x in (a, b))
    if dtype.bits < 64:
        return np.abs(low - high).astype(np.float64)
    return np.where(low > high, low - high, high - low).astype(np.float64)


def _ordered(raw: Array, dtype: DType) -> Array:
    """Integers in the order of the values, one apart where these are neighbours; of 64 bits they
    begin at 2^63, as their differences need all bits."""
    bits = raw.view(f"u{raw.dtype.itemsize}")
    if not FORMS[dtype.name].signed:
        return bits.astype(np.int32)
    sign = bits.dtype.type(1 << (dtype.bits - 1))
    size = bits & ~sign
    if dtype.bits == 64:
        return np.where(bits & sign, sign - size, sign + size)
    size = size.astype(np.int32 if dtype.bits <= 16 else np.int64)
    return np.where(bits & sign, -size, size)
