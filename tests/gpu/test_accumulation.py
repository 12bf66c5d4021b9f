"""What wgmma keeps of a sum of products of 8-bit floats: the bound that kernels are held to,
probed. Row i of A sums B, B 2^-i and -B, so that the small term is left, or lost."""

from __future__ import annotations

import pytest
import torch

from programs.sizes import EVALUATE, path
from tilefoundry.build import build, callable_of
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]
STEP = 32
"""Products that one wgmma adds along k."""
B = 2.0**16
DEEPEST = 21
KEPT = 13
"""Fraction bits of the largest term that a step keeps at least (tests/gpu/test_kernels.py)."""


def factors(i: int) -> tuple[float, float]:
    """Two numbers of e4m3 with the product B 2^-i."""
    one = min(i, 7)
    return 2.0 ** (8 - one), 2.0 ** (8 - i + one)


def left(large: int, small: int, minus: int) -> list[bool]:
    """For i = 1.., whether B 2^-i is left of the sum of three terms at these places along k."""
    loaded = load_source(path("gemm_halves@fp8"), None, EVALUATE["gemm_halves@fp8"])
    kernel = callable_of(build(loaded))
    a, b = (torch.zeros(tuple(x.shape)) for x in kernel.built.source.arguments[:2])
    a[:, large], a[:, minus] = 2.0**8, -(2.0**8)
    b[:, large] = b[:, minus] = 2.0**8
    for i in range(1, DEEPEST + 1):  # row and column i have the factors of B 2^-i
        a[i, small], b[i, small] = factors(i)
    out = kernel(*(x.cuda().to(torch.float8_e4m3fn) for x in (a, b))).float().cpu()
    found = [float(out[i, i]) for i in range(1, DEEPEST + 1)]
    assert all(x in (0.0, B * 2.0**-i) for i, x in enumerate(found, 1)), found
    return [x != 0.0 for x in found]


def test_a_step_keeps_the_bits_that_the_bound_counts_on():
    kept = left(0, 1, 2)
    assert all(kept[:KEPT]), kept
    assert not kept[-1]  # else the probe probes nothing


def test_the_bits_kept_of_a_running_sum_are_those_of_a_step():
    kept = left(0, STEP, 2 * STEP)
    assert all(kept[:KEPT]), kept
