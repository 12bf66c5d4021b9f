"""Faults in programs for CPUs show when they are executed: a report, or another result."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from programs_cpu.cases import SMALL, drawn, path
from tilefoundry.interpret import POLICIES, run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from faults import faults


def shows(program, given, right):
    for seed, policy in enumerate(POLICIES):
        found = run_program(program, given, policy=policy, seed=seed, limit=1)
        if found.reports or not all(map(torch.equal, found.outputs, right)):
            return True
    return False


@pytest.mark.parametrize("name", ["gemm_amx", "gemm_bf16", "projection_amx", "softmax", "total"])
def test_the_first_fault_of_each_kind_in_each_kernel_shows(name):
    loaded = load_source(path(name), None, dict(SMALL[name]))
    program = lower(loaded.module, loaded.func or "")
    given = drawn({p.name: p.tensor for p in loaded.module.funcs[loaded.func].params})
    clean = run_program(program, given)
    assert clean.reports == []
    for kernel, func in program.kernels.items():
        seen = set()
        for fault in faults(func):
            if fault.kind in seen:
                continue
            seen.add(fault.kind)
            broken = replace(program, kernels={**program.kernels, kernel: fault.func})
            assert shows(broken, given, clean.outputs), f"{fault.kind} at {fault.where}"
