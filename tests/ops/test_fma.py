"""One rounding: against Python's exact fractions, where two roundings would differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from tilefoundry.ops.fma import OP

TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def fused(dtype, *numbers):
    given = [torch.tensor(list(n), dtype=dtype) for n in numbers]
    return OP.evaluate(given, {}, None)  # type: ignore[arg-type]


def drawn(dtype, count, seed):
    """Factors near 1, and terms about as large as what the product's rounding drops."""
    stream = np.random.default_rng(seed)
    kind = TYPES[dtype]
    x, y = (stream.uniform(1, 2, count).astype(kind) for _ in range(2))
    product = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)]
    z = np.array([kind(-float(p)) for p in product], kind)
    scale = kind(2.0) ** stream.integers(-60, 60, count).astype(kind)
    return x, y, np.where(stream.random(count) < 0.5, z, z * scale)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_result_is_the_float_nearest_to_the_exact_one(dtype):
    x, y, z = drawn(dtype, 400, 1)
    got = fused(dtype, x, y, z)
    kind = TYPES[dtype]
    twice = 0
    for n, value in enumerate(got.tolist()):
        exact = Fraction(float(x[n])) * Fraction(float(y[n])) + Fraction(float(z[n]))
        off = abs(Fraction(value) - exact)
        for side in (-np.inf, np.inf):
            other = float(np.nextafter(kind(value), kind(side)))
            assert off <= abs(Fraction(other) - exact), (n, value, other)
        twice += float(x[n] * y[n] + z[n]) != value
    assert twice > 100  # rounding the product first gives other numbers


def test_f64_of_all_magnitudes():
    """Also where the product, a term or what is left of them is no normal f64."""
    stream = np.random.default_rng(3)
    scale = [0, -1, 1, -30, 52, -53, 54, -105, -106, 107, -399, 399, -530, 511, -1000, 1000]
    x, y, z = (
        stream.uniform(1, 2, 4000) * 2.0 ** stream.choice(scale, 4000) for _ in range(3)
    )  # fmt: skip
    near = stream.random(4000) < 0.6  # terms that cancel the product, or nearly
    off = 2.0 ** stream.choice(scale[:10], 4000)
    with np.errstate(all="ignore"):
        z = np.where(near, np.nan_to_num(-x * y * off, posinf=1.0, neginf=-1.0), z)
    y[::97], x[::89], z[::83] = 0.0, -0.0, 0.0
    got = fused(torch.float64, x, y, z).tolist()
    for n, value in enumerate(got):
        exact = Fraction(x[n]) * Fraction(y[n]) + Fraction(z[n])
        try:
            want = exact.numerator / exact.denominator  # Python rounds a quotient once
        except OverflowError:
            want = np.inf if exact > 0 else -np.inf
        assert value == want, (n, x[n], y[n], z[n])


def test_halfway_between_two_floats():
    """1 + 2^-23 is odd: 2^-24 more is half a unit, and a product tells to which side."""
    odd, less = 1 + 2.0**-23, 1 - 2.0**-24
    x, y, z = (less, -less, 1.0), (2.0**-24, 2.0**-24, 2.0**-24), (odd, odd, odd)
    assert fused(torch.float32, x, y, z).tolist() == [odd, odd, 1 + 2.0**-22]


def test_ends():
    most, inf, nan = torch.finfo(torch.float64).max, float("inf"), float("nan")
    x, y, z = (most, most, most, 0.0, -0.0, 1.0, inf), (2.0, 2.0, -2.0, inf, 1.0, -1.0, 1.0), (
        -most, -inf, 0.0, 1.0, -0.0, 1.0, -inf,
    )  # fmt: skip
    got = fused(torch.float64, x, y, z)
    want = torch.tensor([most, -inf, -inf, nan, -0.0, 0.0, nan], dtype=torch.float64)
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    assert torch.equal(got.signbit()[4:6], want.signbit()[4:6])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_fused_in_f32_and_rounded_once_more(dtype):
    given = [
        torch.randn(64, generator=torch.Generator().manual_seed(n)).to(dtype) for n in range(3)
    ]
    want = fused(torch.float32, *(x.float().tolist() for x in given)).to(dtype)
    assert torch.equal(OP.evaluate(given, {}, None), want)  # type: ignore[arg-type]
