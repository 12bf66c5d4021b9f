"""Whole programs against torch: the posts' programs at full or reduced size."""

from __future__ import annotations

from pathlib import Path

import torch

from programs.sizes import path
from tilefoundry.evaluate import evaluate
from tilefoundry.ir.node import nodes
from tilefoundry.lang.load import load_source

CASES = Path(__file__).parents[1] / "cases"


def run(file: str, *inputs: torch.Tensor, weights=None, **consts: object):
    loaded = load_source(str(CASES / file), None, consts)
    return evaluate(loaded.module, loaded.func, inputs, weights)


def normal(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_the_chain_is_bitwise_torchs_in_all_three_placements():
    x = normal(1, 4096, 2048, dtype=torch.float16, seed=0)
    expected = (x * x + x) * x
    for file in ("chain_plain.py", "chain_too_big.py", "chain_two_cuts.py"):
        (y,) = run(file, x)
        assert torch.equal(y, expected), file


def test_the_residual_norm_fragment_matches_torch_and_carries_the_posts_types():
    h = normal(1, 1, 2688, dtype=torch.bfloat16, seed=1)
    mix = normal(1, 1, 2688, dtype=torch.bfloat16, seed=2)
    gamma = normal(2688, dtype=torch.bfloat16, seed=3)
    residual, out = run("residual_rmsnorm.py", h, mix, weights={"gamma": gamma})
    assert torch.equal(residual, h + mix)
    exact = (h + mix).double()
    wide = exact * torch.rsqrt((exact * exact).mean(-1, keepdim=True) + 1e-5)
    # two bf16 roundings (the cast and the product with gamma) of relative error 2^-8 each,
    # and a float32 sum of 2688 squares: 2688 * 2^-24 < 2^-12
    bound = 2 * 2.0**-8 + 2.0**-12
    assert ((out.double() - wide * gamma.double()).abs() <= bound * (wide * gamma).abs()).all()

    loaded = load_source(str(CASES / "residual_rmsnorm.py"), None, {})
    types = {n.name: n.type for n in nodes(loaded.module.funcs["residual_norm"].body)}
    shared = '(1, 1, 256 @ y, 11), "rmem"]'
    for name in ("h_r", "mix_r", "gamma_r", "next_h", "normed"):
        assert str(types[name]) == f'Tensor[(1, 1, 256, 11), "bf16", {shared}', name
    assert str(types["local_sq"]) == 'Tensor[(1, 1, 256, 1), "f32", (1, 1, 256 @ y, 1), "rmem"]'
    assert str(types["sum_sq"]) == 'Tensor[(1, 1, 1, 1), "f32", "smem"]'


def test_the_scheduled_gemm_at_a_reduced_size_equals_float64():
    a = normal(2048, 128, dtype=torch.bfloat16, seed=4)
    b = normal(128, 512, dtype=torch.bfloat16, seed=5)
    for ctas in (1, 5, 132):  # one unit; trips that differ; more units than tasks
        (c,) = run(path("gemm_optimal"), a, b, M=2048, N=512, K=128, CTAS=ctas)
        exact = a.double() @ b.double()
        # one bf16 rounding, and a float32 sum of 128 products
        slack = 128 * 2.0**-24 * (a.double().abs() @ b.double().abs())
        assert ((c.double() - exact).abs() <= 2.0**-8 * exact.abs() + slack).all(), ctas
