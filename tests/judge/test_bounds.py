"""Derived bounds: figures worked by hand, and sums that keep to them."""

import math

import pytest
import torch

from tilefoundry.judge import bounds


def test_unit_roundoffs():
    assert bounds.unit_roundoff("f32") == 2**-24
    assert bounds.unit_roundoff("f16") == 2**-11
    assert bounds.unit_roundoff("bf16") == 2**-8


def test_by_hand():
    # n = 4096 in f32: n*u = 2^-12; gamma = 2^-12 / (1 - 2^-12) = 1/4095.
    assert bounds.worst(4096) == pytest.approx(2 * (1 / 4095 + 2**-24))
    assert bounds.typical(4096, output="bf16") == 2 * (2**-18 + 2**-8)
    assert bounds.absolute(4096, 0.5, output="bf16") == 6 * 32 * bounds.typical(4096, "f32", "bf16")
    assert bounds.worst(1 << 11, "f16") == math.inf


@pytest.mark.parametrize("output", ["f32", "bf16", "f16"])
def test_products_of_matrices_keep_to_them(output):
    torch.manual_seed(1)
    n, dtype = 2048, {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[output]
    a, b = torch.randn(64, n), torch.randn(n, 64)
    exact = a.double() @ b.double()
    got = (a @ b).to(dtype).double()
    off = (got - exact).abs()
    assert off.norm() / exact.norm() <= bounds.typical(n, "f32", output)
    assert off.max() <= bounds.absolute(n, 1.0, "f32", output)
    assert (off <= bounds.worst(n, "f32", output) * (a.double().abs() @ b.double().abs())).all()
