"""Values that all CTAs complete together, on a device: many CTAs and few, one warp and several,
warps that keep values apart, rounds in a loop."""

from __future__ import annotations

import pytest
import torch

from tilefoundry.build import build, callable_of
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]
ALL = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROUNDS, ROWS, COLS, WARPS = {rounds}, {rows}, {cols}, {warps}
WIDTH = COLS * WARPS * 32

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", ROWS * COLS), Topology("thread", WARPS * 32)))
class P:
    @func
    def f(x: Tensor[(ROUNDS, ROWS, WIDTH), "f32"]) -> Tensor[(ROUNDS, 1, 1), "f32"]:
        out = tf.empty(Tensor[(ROUNDS, 1, 1), "f32"])
        with Mesh(("cta",), layout=(ROWS, COLS), names=("r", "c")) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("w", "l")) as t:
                for k in range(ROUNDS):
                    held = tf.reshard(
                        x[k:k + 1, :, :],
                        (1, ROWS @ cta.r, COLS @ cta.c, WARPS @ t.w, 32 @ t.l), "rmem",
                    )
                    whole = tf.reshard(tf.reduce(held, (1, 2), True, "{kind}"), (1, 1, 1))
                    out = tf.insert_slice(out, whole, (k, 0, 0))
        return out
"""
APART = """
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

CTAS, WARPS, KEPT = {ctas}, {warps}, {kept}

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"),
        topologies=(Topology("cta", CTAS), Topology("thread", KEPT * WARPS * 32)))
class P:
    @func
    def f(x: Tensor[(KEPT, CTAS * WARPS * 32), "f32"]) -> Tensor[(KEPT, 1), "f32"]:
        with Mesh(("cta",), layout=(CTAS,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(KEPT, WARPS, 32), names=("k", "w", "l")) as t:
                held = tf.reshard(x, (KEPT @ t.k, CTAS @ cta.c, WARPS @ t.w, 32 @ t.l), "rmem")
                whole = tf.reshard(tf.reduce(held, (1,), True, "sum"), (KEPT @ t.k, 1))
                return tf.reshard(whole, (KEPT @ t.k, 1), "gmem")
"""


def kernel(text, folder):
    path = folder / "p.py"
    path.write_text(text)
    return callable_of(build(load_source(str(path), None, {})))


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize(("rows", "cols", "warps"), [
    (1, 4, 2), (31, 1, 1), (32, 1, 4), (4, 33, 1), (16, 16, 4), (1, 100, 8),
])  # fmt: skip
def test_all_units(kind, rows, cols, warps, tmp_path):
    rounds = 3
    f = kernel(ALL.format(rounds=rounds, rows=rows, cols=cols, warps=warps, kind=kind), tmp_path)
    for _ in range(20):
        x = torch.randn(rounds, rows, cols * warps * 32, device="cuda")
        want = x.double().sum((1, 2)) if kind == "sum" else x.double().amax((1, 2))
        slack = 1e-5 * x.numel() ** 0.5 if kind == "sum" else 0.0
        assert (f(x).flatten().double() - want).abs().max() <= slack


@pytest.mark.parametrize(("ctas", "warps", "kept"), [(64, 2, 4), (40, 1, 8), (8, 2, 2)])
def test_warps_that_keep_values_apart(ctas, warps, kept, tmp_path):
    f = kernel(APART.format(ctas=ctas, warps=warps, kept=kept), tmp_path)
    for _ in range(20):
        x = torch.randn(kept, ctas * warps * 32, device="cuda")
        assert (f(x).flatten().double() - x.double().sum(1)).abs().max() <= 1e-3
