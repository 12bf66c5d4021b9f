"""Which contracts a target has, and the refusals around them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.targets.contract.registry import contracts, find_contract
from tilefoundry.targets.load import load_target


def test_the_h200_has_the_hopper_instructions_first():
    paths = [c.path for c in contracts(load_target("nvidia.h200_sxm"))]
    assert paths[:3] == ["cuda.sm90.Wgmma", "cuda.sm80.Mma", "cuda.sm89.Mma"]


def test_a_target_without_the_capability():
    target = load_target("nvidia.h200_sxm")
    older = replace(target.device.architecture, capabilities=("mma.sync",))
    without = replace(target, device=replace(target.device, architecture=older))
    assert "cuda.sm90.Wgmma" not in [c.path for c in contracts(without)]
    with pytest.raises(Refusal) as refused:
        find_contract(without, "cuda.sm90.Wgmma")
    assert refused.value.diags[0].code == "contract-capability"


def test_a_cpu_has_no_cuda_instruction():
    with pytest.raises(Refusal) as refused:
        find_contract(load_target("cpu.generic"), "cuda.sm90.Wgmma")
    assert refused.value.diags[0].code == "contract-unknown"
