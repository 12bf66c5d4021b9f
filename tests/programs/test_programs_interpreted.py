"""Every program as it is lowered, executed warp by warp: right, with no race and no deadlock."""

from __future__ import annotations

import pytest
import torch

from programs.reference import REFERENCES, inputs, misses
from programs.sizes import INTERPRET, path
from tilefoundry.interpret import run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize


@pytest.mark.parametrize("case", sorted(INTERPRET))
def test_the_kernels_compute_what_the_mathematics_says(case):
    torch.set_num_threads(1)
    loaded = load_source(path(case), None, INTERPRET[case])
    program, findings = finalize(loaded)
    assert not findings
    values = inputs({p.name: p.type for p in loaded.module.funcs[loaded.func].params})
    found = run_program(program, values)
    assert not found.reports
    wanted = REFERENCES[case.split("@")[0]](values, loaded.python)
    for got, want in zip(found.outputs, wanted, strict=True):
        assert not misses(got, want)
