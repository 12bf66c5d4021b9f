"""Fills that other CTAs of a cluster are told of, on a device; what each CTA holds of a value."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tilefoundry.build import build, callable_of

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))
import test_redistributions as distributed
import test_sync_clusters as clusters

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]
REPEATS = 100


@pytest.mark.parametrize("load", ["copy", "copy_async", "copy_async_tensor"])
def test_each_cta_loads_its_part_and_reads_the_others(tmp_path, load):
    loaded = distributed.program(tmp_path, distributed.CLUSTER, distributed.LOAD, load=load)
    kernel, x = callable_of(build(loaded)), torch.randn(2, 64, device="cuda")
    outs = [kernel(x) for _ in range(REPEATS)]
    assert all(torch.equal(out, x.expand(2, 2, 64)) for out in outs)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("shape", [(2, 1), (2, 2)])
def test_a_multicast_over_a_fill_that_nobody_read(tmp_path, shape, slots):
    words = {"shape": shape, "slots": slots, "count": 7, "clusters": 4}
    kernel = callable_of(build(clusters.program(tmp_path, clusters.TWICE, **words)))
    x = torch.randn(7, 64, 64, device="cuda")
    outs = [kernel(x) for _ in range(REPEATS)]
    assert all(torch.equal(out, x[:, None].expand_as(out)) for out in outs)
