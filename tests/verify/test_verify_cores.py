"""Programs for CPUs: lowerings are accepted, faults in windows, tiles and loads are caught."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from programs_cpu.cases import SMALL, path
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.program import Buffer
from tilefoundry.tir.rewrite import rebuild
from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from faults import FAMILY, faults


@cache
def kernels(name):
    loaded = load_source(path(name), None, dict(SMALL[name]))
    return tuple(lower(loaded.module, loaded.func or "").kernels.values())


@pytest.mark.parametrize("name", SMALL)
def test_lowerings_are_accepted(name):
    for kernel in kernels(name):
        assert verify(kernel) == ()


@pytest.mark.parametrize("name", ["gemm_amx", "gemm_avx512", "projection_amx", "softmax", "total"])
def test_faults_are_caught(name):
    for kernel in kernels(name):
        for fault in faults(kernel):
            families = {f.code for f in verify(fault.func)}
            assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"


def test_a_tile_that_there_is_not():
    gemm = kernels("gemm_amx")[-1]
    tile: Buffer = next(b for b in gemm.buffers if b.storage == "tmem")
    (found,) = verify(rebuild(gemm, buffers={tile: replace(tile, offsets=(8192,))}))
    assert found.code == "smem-plan"
    assert "bytes 8192 to 9216 are outside the 8192 of tmem" in found.missing
