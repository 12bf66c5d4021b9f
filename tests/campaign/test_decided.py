"""Random decisions: every program is refused with a code, or lowered, verified, and executed to
what it means, bit by bit."""

import pytest
import torch
from campaign_profile import LONG
from decided import decide

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.interpret import POLICIES, run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.ops.base import torch_dtype

FEW, MANY = {"cuda": 40, "cpu": 25}, 3000
SEEDS = [(t, n) for t, few in FEW.items() for n in range(MANY if LONG else few)]


@pytest.mark.parametrize(("target", "seed"), SEEDS)
def test_decisions(target, seed, tmp_path):
    torch.set_num_threads(1)
    path = tmp_path / "decided.py"
    path.write_text(decide(seed, target), encoding="utf-8")
    try:
        loaded = load_source(str(path), None, {})
        program, _ = finalize(loaded)
    except Refusal as refusal:
        assert all(d.fix for d in refusal.diags)
        assert "tir-unverified" not in {d.code for d in refusal.diags}, refusal
        return
    func = loaded.module.funcs[loaded.func]
    drawn = torch.Generator().manual_seed(seed)
    given = {}
    for p in func.params:
        whole = torch.randint(-4, 5, p.tensor.shape, generator=drawn)
        given[p.name] = whole.to(torch_dtype(p.tensor.dtype))
    want = evaluate(loaded.module, loaded.func, [*given.values()])
    policy = POLICIES[seed % len(POLICIES)]
    found = run_program(program, given, seed=seed, policy=policy)
    assert [str(r) for r in found.reports] == []
    assert all(torch.equal(a, b) for a, b in zip(found.outputs, want, strict=True))
