"""Which contracts a target has, and the refusals around them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from process import environment
from tilefoundry.diag import Refusal
from tilefoundry.targets.contract.registry import (
    contract_at,
    contracts,
    find_contract,
    known_beside,
)
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


def test_a_path_is_declared_once_and_found():
    """Whichever family is read first has no say in which contract a path means."""
    every = known_beside("")
    assert len({c.path for c in every}) == len(every) > 50
    assert all(contract_at(c.path) is c for c in every)


def test_families_of_other_hardware_are_not_read():
    """Nor packages on the path: a program's load would wait for both."""
    program = (
        "import sys; from tilefoundry.target import CudaTarget;"
        "CudaTarget('nvidia.h200_sxm').load();"
        "from tilefoundry.targets.contract.registry import contract_at;"
        "assert contract_at('copy') and contract_at('cuda.sm90.Wgmma') and contract_at('stmatrix');"
        "bad = [m for m in sys.modules if 'importlib.metadata' in m or '.instr' in m"
        " and m.startswith(('tilefoundry.targets.cpu', 'tilefoundry.targets.apple_amx'))];"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert done.returncode == 0
