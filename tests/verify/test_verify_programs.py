"""Real lowerings are accepted; faults in them are caught."""

import sys
from functools import cache
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.verify import machine, verify

sys.path += [str(Path(__file__).parents[1] / "tir"), str(Path(__file__).parents[1] / "programs")]
import sizes
from faults import FAMILY, faults
from samples import gemm


@cache
def kernels(case):
    loaded = load_source(sizes.path(case), None, sizes.EVALUATE[case])
    return tuple(lower(loaded.module, loaded.func or "").kernels.values())


@pytest.mark.parametrize("case", sizes.EVALUATE)
def test_lowerings_are_accepted(case):
    for kernel in kernels(case):
        assert verify(kernel) == ()


@pytest.mark.parametrize(
    "case", ["gemm_ampere", "gemm_rs", "gemm_halves", "flash_attention@d64", "transpose_smem"]
)
def test_faults_in_lowerings_are_caught(case):
    for kernel in kernels(case):
        for fault in faults(kernel):
            families = {f.code for f in verify(fault.func)}
            assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"


@pytest.mark.parametrize("stages", [1, 2])
def test_a_cut_loop_tells_what_the_whole_loop_tells(stages, monkeypatch):
    # 12 tiles of 13 steps: both loops are longer than what is run of them
    func = gemm(tiles=(12, 1), k_steps=13, ctas=1, stages=stages, groups=1, storer="own")
    made = [func, *(f.func for f in faults(func) if f.kind in KINDS)]
    short = [{f.code for f in verify(f)} for f in made]
    monkeypatch.setattr(machine, "iterations", lambda values, cut, env: values)
    assert short == [{f.code for f in verify(f)} for f in made]


KINDS = ("early-release", "shallow-wait", "drop-wait", "parity")
