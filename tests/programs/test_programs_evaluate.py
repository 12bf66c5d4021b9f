"""Every program reads, types and computes what the mathematics says, at a reduced size."""

from __future__ import annotations

import pytest
import torch

from programs.reference import REFERENCES, inputs, misses
from programs.sizes import EVALUATE, EXAMPLES, INTERPRET, path
from tilefoundry.analyze.report import analyze
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source


def test_each_program_has_a_reference_and_both_sizes():
    files = {f.stem for f in EXAMPLES.glob("*.py")}
    assert files == set(REFERENCES)
    assert {c.split("@")[0] for c in EVALUATE} == files
    assert set(EVALUATE) == set(INTERPRET)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_program_fits_its_target_at_its_own_size(name):
    report = analyze(load_source(path(name), None, {}), ("memory",), {}, None)
    assert report.exit == 0, report.findings


def run(case, consts):
    """The results of a program and what is expected of them."""
    loaded = load_source(path(case), None, consts)
    func = loaded.module.funcs[loaded.func]
    values = inputs({p.name: p.type for p in func.params})
    plain = [values[p.name] for p in func.params if p.name not in func.weights]
    weights = {name: values[name] for name in func.weights}
    got = evaluate(loaded.module, loaded.func, plain, weights)
    return got, REFERENCES[case.split("@")[0]](values, loaded.python)


@pytest.mark.parametrize("case", sorted(EVALUATE))
def test_program_computes_its_mathematics(case):
    torch.set_num_threads(1)
    got, want = run(case, EVALUATE[case])
    assert len(got) == len(want)
    for value, expected in zip(got, want, strict=True):
        assert not misses(value, expected)
        scaled = 1.25 if value.dtype is torch.float8_e4m3fn else 1.02
        # the bound tells a right result from none, a shifted and a slightly scaled one
        assert misses(torch.zeros_like(value), expected)
        assert value.numel() == 1 or misses(value.double().roll(1, -1), expected)
        assert misses(value.double() * scaled, expected)


@pytest.mark.parametrize("case", sorted(INTERPRET))
def test_program_computes_its_mathematics_at_the_size_for_interpretation(case):
    torch.set_num_threads(1)
    got, want = run(case, INTERPRET[case])
    for value, expected in zip(got, want, strict=True):
        assert not misses(value, expected)
