"""What verification and interpretation find becomes a refusal that names both sides."""

import sys
from pathlib import Path

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.judge import lowered
from tilefoundry.lang.load import load_source
from tilefoundry.tir.program import Launch, Program
from tilefoundry.verify.accept import accept

sys.path.insert(0, str(Path(__file__).parents[1] / "tir"))
from faults import faults
from samples import gemm

PROGRAM = "examples/gpu/gemm_optimal.py"
SMALL = {"M": 128, "N": 256, "K": 128, "CTAS": 1, "GROUP": 1}


@pytest.fixture(scope="module")
def faulty():
    """The sample kernel without the wait for its loads."""
    kernel = gemm(tiles=(1, 1), k_steps=2, ctas=1)
    return next(f.func for f in faults(kernel) if f.kind == "drop-wait" and "full" in f.where)


def test_a_kernel_that_does_not_verify_is_refused(faulty):
    accept(gemm(tiles=(1, 1), k_steps=2, ctas=1))
    with pytest.raises(Refusal) as refused:
        accept(faulty)
    text = str(refused.value)
    assert {d.code for d in refused.value.diags} == {"tir-unverified"}
    assert "sync-race" in text and "lhs_ring" in text and "fix:" in text


def test_capacity_is_no_refusal_of_verification():
    accept(gemm(tiles=(1, 1), k_steps=2, ctas=1, stages=5))


def test_an_execution_that_finds_something_is_refused(faulty, monkeypatch):
    torch.set_num_threads(1)
    made = lowered.Interpreted(load_source(PROGRAM, None, SMALL))
    a, b = torch.randn(128, 128).bfloat16(), torch.randn(128, 256).bfloat16()
    (out,) = made(a, b)
    want = a.double() @ b.double()
    assert (out.double() - want).norm() / want.norm() < 2**-8
    launch = Launch("gemm", ("a", "b"), ("out",))
    made.program = Program({"gemm": faulty}, "gemm", ("a", "b"), (launch,), ("out",))
    with pytest.raises(Refusal) as refused:
        made(a, b)
    (diag,) = refused.value.diags
    assert diag.code == "lowered-report"
    assert diag.fields["kind"] in ("race", "overwritten-slot", "uninitialised")
