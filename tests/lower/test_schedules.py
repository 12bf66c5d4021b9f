"""Random scheduled programs through every stage: lowered, verified, executed, evaluated."""

import sys
from pathlib import Path

import pytest
import torch

from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import POLICIES, run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.ops.base import torch_dtype
from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from schedules import schedule


@pytest.mark.parametrize("seed", range(60))
def test_a_schedule_computes_what_its_program_means(seed, tmp_path):
    torch.set_num_threads(1)
    path = tmp_path / "drawn.py"
    path.write_text(schedule(seed), encoding="utf-8")
    loaded = load_source(str(path), None, {})
    program = lower(loaded.module, loaded.func)
    assert [f for k in program.kernels.values() for f in verify(k)] == []
    (param,) = loaded.module.funcs[loaded.func].params
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-2, 3, param.tensor.shape, generator=generator)
    x = x.to(torch_dtype(param.tensor.dtype))
    (want,) = evaluate(loaded.module, loaded.func, [x])
    found = run_program(program, {"x": x}, seed=seed, policy=POLICIES[seed % len(POLICIES)])
    assert found.reports == []
    assert torch.equal(found.outputs[0], want)
