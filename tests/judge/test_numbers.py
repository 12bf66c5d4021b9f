"""Element types in numpy, against torch's own conversions."""

import numpy as np
import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.numbers import (
    PART,
    STORED,
    alike,
    coarsened,
    decode,
    encode,
    spacing,
    stored,
    ulp_distance,
)
from tilefoundry.judge.tensor import RawTensor

FLOATS = [d for d in DTYPES.values() if d.is_float and d.name in STORED]


def bits(tensor, dtype):
    return tensor.view(torch.uint8).numpy().view(stored(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_are_torchs(dtype):
    width = np.dtype(stored(dtype)).itemsize
    codes = (
        np.arange(256, dtype=np.uint8).repeat(width)
        if width == 1
        else (np.random.default_rng(1).integers(0, 256, 4096 * width).astype(np.uint8))
    )
    raw = codes.view(stored(dtype))
    seen = torch.from_numpy(codes.copy()).view(getattr(torch, dtype.torch)).double().numpy()
    assert np.array_equal(decode(raw, dtype), seen, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding_is_torchs(dtype):
    rng = np.random.default_rng(2)
    values = rng.standard_normal(4096) * np.exp2(rng.integers(-6, 7, 4096))
    if dtype.name == "f8e8m0":
        values = np.exp2(rng.integers(-100, 100, 4096).astype(float))
    want = torch.from_numpy(values).float().to(getattr(torch, dtype.torch))
    if dtype.bits == 64:
        want = torch.from_numpy(values)
    got = encode(values.astype(np.float32) if dtype.bits < 64 else values, dtype)
    assert np.array_equal(decode(got, dtype), decode(bits(want, dtype), dtype))


def test_ties_go_to_even():
    # e4m3 near 1: spacing 1/8, so 1 + 1/16 and 1 + 3/16 are ties.
    got = decode(encode(np.array([1.0625, 1.1875, -1.0625]), DTYPES["fp8e4m3"]), DTYPES["fp8e4m3"])
    assert got.tolist() == [1.0, 1.25, -1.0]


def test_spacings():
    assert spacing(DTYPES["f16"]) == 2**-10
    assert spacing(DTYPES["bf16"]) == 2**-7
    assert spacing(DTYPES["f32"]) == 2**-23


@pytest.mark.parametrize(
    "a, b, apart",
    [(1.0, 1.0009765625, 1), (0.0, -0.0, 0), (2.0**-24, -(2.0**-24), 2), (1.0, 2.0, 1024)],
)
def test_ulp_of_f16(a, b, apart):
    pair = [np.array([x], np.float16) for x in (a, b)]
    assert ulp_distance(*pair, DTYPES["f16"]).tolist() == [apart]


def test_ulp_of_the_whole_range_of_f64_does_not_overflow():
    top = np.finfo(np.float64).max
    far = ulp_distance(np.array([top]), np.array([-top]), DTYPES["f64"])
    assert far[0] == pytest.approx(2 * 0x7FEFFFFFFFFFFFFF)


def test_integers_keep_all_their_bits():
    big = np.array([2**62 + 1, -(2**62) - 1])
    assert decode(big, DTYPES["i64"]).tolist() == [2**62 + 1, -(2**62) - 1]
    assert RawTensor.from_values(DTYPES["i8"], (2,), np.array([300, -300])).flat.tolist() == [
        127,
        -128,
    ]


def test_packed_types_are_refused():
    with pytest.raises(Refusal, match="check-dtype"):
        stored(DTYPES["f4e2m1"])


@pytest.mark.parametrize("count", [1, PART - 1, 2 * PART + 5])
@pytest.mark.parametrize("name, kind", [("f32", torch.float32), ("f16", torch.float16)])
def test_coarser_values_are_those_of_bf16(name, kind, count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(5)).to(kind)
    values[values.abs() < 2**-10] = 1.0  # a subnormal of f16 is none of bf16
    values[-1] = torch.inf
    found = coarsened(values.numpy(), DTYPES[name])
    assert torch.equal(torch.from_numpy(found), values.to(torch.bfloat16).to(kind))


def test_coarser_f64_has_the_bits_of_f32():
    values = np.random.default_rng(6).standard_normal(PART + 3)
    found = coarsened(values, DTYPES["f64"])
    assert np.array_equal(found, values.astype(np.float32).astype(np.float64))
    assert coarsened(np.zeros(4, np.uint16), DTYPES["bf16"]) is None


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1001])
def test_bytes_alike(count):
    one = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    assert alike(one, one.copy()) and not alike(one, np.zeros(count + 1, np.uint8))
    for at in {0, count // 2, count - 1} if count else ():
        other = one.copy()
        other[at] ^= 1
        assert not alike(one, other)


def test_bytes_alike_are_no_values():
    halves = np.array([np.nan, 0.0, 1.0, 2.0], np.float16)
    assert alike(halves, halves.copy())
    assert not alike(halves, np.array([np.nan, -0.0, 1.0, 2.0], np.float16))


@pytest.mark.parametrize("where", [0, PART - 1, PART, 3 * PART])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_value_that_is_not_finite_is_seen_anywhere(where, value):
    values = np.ones(3 * PART + 1, np.float32)
    assert RawTensor(DTYPES["f32"], values.shape, values).is_finite
    values[where] = value
    assert not RawTensor(DTYPES["f32"], values.shape, values).is_finite
