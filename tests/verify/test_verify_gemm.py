"""The hand-built GEMM: accepted in all variants, and with any fault refused."""

import sys
from pathlib import Path

import pytest

from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from faults import FAMILY, faults
from samples import gemm

CAPACITY = 232_448
"""227 KiB of shared memory per CTA."""


@pytest.mark.parametrize("storer", ["own", "loader"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stages", range(1, 9))
def test_every_variant_is_accepted(stages, groups, storer):
    for k_steps in range(10):
        func = gemm(k_steps=k_steps, groups=groups, stages=stages, storer=storer)
        wrong = {"smem-capacity"} if func.shared_bytes > CAPACITY else set()
        assert {f.code for f in verify(func)} == wrong, k_steps


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"stages": 1, "k_steps": 3, "storer": "own"},
        {"stages": 3, "k_steps": 2, "groups": 1, "storer": "own"},
        {"stages": 2, "k_steps": 7, "groups": 1},
        {"stages": 3, "k_steps": 0},
        {"stages": 3, "k_steps": 1, "storer": "own", "tiles": (5, 1)},
    ],
    ids=lambda v: ",".join(f"{k}={x}" for k, x in v.items()) or "default",
)
def test_every_fault_is_caught(variant):
    kinds = set()
    for fault in faults(gemm(**variant)):
        families = {f.code for f in verify(fault.func)}
        assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"
        kinds.add(fault.kind)
    assert len(kinds) >= 15


def test_full_size_in_time():
    from time import process_time

    func = gemm(tiles=(64, 68), k_steps=80, ctas=132)
    verify(func)
    start = process_time()
    assert verify(func) == ()
    assert process_time() - start < 0.5  # 0.06 s on an idle core
