"""Kernels that start while the one before them ends: each sees what all before it wrote, and
overwrites nothing that they still read."""

from __future__ import annotations

import pytest
import torch

from programs.sizes import path
from tilefoundry.build import build, callable_of
from tilefoundry.lang.load import load_source

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]
SIZE = {"M": 128, "N": 1024, "K": 1024}
CALLS, TURNS = 12, 100


@pytest.fixture(scope="module")
def product():
    kernel = callable_of(build(load_source(path("gemm_skinny"), None, SIZE)))
    assert all(x["overlaps"] for x in kernel.built.source.launches)
    return kernel


@pytest.fixture
def chain(product):
    """A chain of products in two tensors by turns, torch's kernels between some of them; and what
    it leaves if the host waits after each."""
    torch.manual_seed(7)
    start = torch.randn(SIZE["M"], SIZE["K"], device="cuda").bfloat16()
    weights = [(torch.randn(SIZE["K"], SIZE["N"], device="cuda") / 32).bfloat16() for _ in range(3)]
    held = [torch.empty_like(start) for _ in range(2)]

    def run(settle=lambda: None):
        held[0].copy_(start)
        settle()
        for n in range(CALLS):
            product.into([held[1 - n % 2]], held[n % 2], weights[n % 3])
            settle()
            if n % 4 == 3:
                held[1 - n % 2].mul_(0.5)
                settle()
        return held[CALLS % 2]

    want = run(torch.cuda.synchronize).clone()
    assert want.isfinite().all() and want.float().std() > 0
    return run, want


def test_on_a_stream(chain):
    run, want = chain
    found = [run().clone() for _ in range(TURNS)]
    assert all(torch.equal(x, want) for x in found)


def test_in_a_graph(chain):
    run, want = chain
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    found = []
    for _ in range(TURNS):
        graph.replay()
        found.append(out.clone())
    assert all(torch.equal(x, want) for x in found)
