"""The evaluator on a device: the same values as the CPU's exact arithmetic allows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from programs.sizes import path
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]

CASES = Path(__file__).parents[1] / "cases"


def run(file: str, *inputs: torch.Tensor, weights=None, **consts: object):
    loaded = load_source(str(CASES / file), None, consts)
    return evaluate(loaded.module, loaded.func, inputs, weights, device="cuda")


def test_the_chain_is_bitwise_torchs():
    x = torch.randn(1, 4096, 2048).half()
    for file in ("chain_plain.py", "chain_too_big.py", "chain_two_cuts.py"):
        (y,) = run(file, x)
        assert y.is_cuda
        assert torch.equal(y.cpu(), (x * x + x) * x), file


@pytest.mark.parametrize("ctas", [1, 5, 132])
def test_the_scheduled_gemm_equals_float64(ctas: int):
    a, b = torch.randn(2048, 256).bfloat16(), torch.randn(256, 512).bfloat16()
    (c,) = run(path("gemm_optimal"), a, b, M=2048, N=512, K=256, CTAS=ctas)
    exact = a.double() @ b.double()
    # one bf16 rounding, and a float32 sum of 256 products
    slack = 256 * 2.0**-24 * (a.double().abs() @ b.double().abs())
    assert ((c.cpu().double() - exact).abs() <= 2.0**-8 * exact.abs() + slack).all()


def test_residual_and_norm():
    h, mix = (torch.randn(1, 1, 2688).bfloat16() for _ in range(2))
    gamma = torch.randn(2688).bfloat16()
    residual, out = run("residual_rmsnorm.py", h, mix, weights={"gamma": gamma})
    assert torch.equal(residual.cpu(), h + mix)
    exact = (h + mix).double()
    wide = exact * torch.rsqrt((exact * exact).mean(-1, keepdim=True) + 1e-5) * gamma.double()
    bound = 2 * 2.0**-8 + 2.0**-12
    assert ((out.cpu().double() - wide).abs() <= bound * wide.abs()).all()
