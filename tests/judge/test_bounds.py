"""Derived bounds: figures worked by hand, and sums that keep to them."""

import math

import numpy as np
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


def test_scale_is_the_deviation_of_a_term():
    torch.manual_seed(2)
    n = 2048
    a, b = torch.randn(64, n) * 3, torch.randn(n, 64) / 5
    exact = a.double() @ b.double()
    off = (a @ b).bfloat16().double() - exact
    bound = bounds.absolute(n, 3 / 5, "f32", "bf16")
    assert bound / 20 < off.abs().max() <= bound


def test_composites_keep_to_the_bounds_that_the_document_derives():
    torch.manual_seed(3)
    n, u = 1024, bounds.unit_roundoff("f32")
    x, w, b = torch.randn(256, n), 1 + torch.randn(n) / 8, torch.randn(n) / 8

    def layer_norm(x, w, b):
        mean = x.sum(1, keepdim=True) / n
        off = x - mean
        variance = (off * off).sum(1, keepdim=True) / n
        return off * torch.rsqrt(variance + 1e-5) * w + b

    def softmax(x):
        e = torch.exp(x - x.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)

    m = float((x.amax(1, keepdim=True) - x).max())
    pairs = [
        (layer_norm(x, w, b), layer_norm(x.double(), w.double(), b.double()),
         2 * (2 * n**0.5 + 9) * u),
        (softmax(x), softmax(x.double()), 2 * (m + n**0.5 + 2) * u),
    ]  # fmt: skip
    for got, exact, bound in pairs:
        assert 0 < (got.double() - exact).norm() / exact.norm() <= bound


def test_sums_that_cancel_are_bounded_by_their_terms_magnitudes_and_not_in_ulp():
    """Two orders of one sum in f32, the terms' magnitudes in float64: within the worst bound of
    these (Higham, Accuracy and Stability, 4.2), and thousands of neighbours apart."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 256)).astype(np.float32)
    w = draw.standard_normal((256, 64)).astype(np.float32)
    forwards, backwards = (
        np.cumsum((x[:, ::way, None] * w[None, ::way, :]).astype(np.float32), axis=1)[:, -1]
        for way in (1, -1)
    )
    magnitudes = np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64))
    apart = np.abs(forwards.astype(np.float64) - backwards)
    assert (apart <= bounds.worst(256, accumulate="f32", output="f32") * magnitudes).all()
    neighbours = forwards.view(np.int32).astype(np.int64) - backwards.view(np.int32)
    assert np.abs(neighbours).max() > 1000
