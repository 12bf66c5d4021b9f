"""Loops against the Python loop that they say: every way in which names may step."""

from __future__ import annotations

import itertools
import textwrap

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.lang.load import load_source

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N = DimVar("n", 0, 8)


@module(entry="f", target=CudaTarget("nvidia.h200_sxm"), topologies=(Topology("cta", 4),))
class Program:
"""
STEPS = ["a", "b", "c", "a + b"]


def run(tmp_path, members, *inputs):
    path = tmp_path / "program.py"
    path.write_text(HEAD + textwrap.indent(textwrap.dedent(members).strip("\n"), "    ") + "\n")
    loaded = load_source(str(path), None, {})
    return evaluate(loaded.module, loaded.func, inputs)


def stepped(step, trips, a, b, c):
    """What the Python loop of these right sides gives."""
    for _ in range(trips):
        a, b, c = eval(step)
    return a, b, c


@pytest.mark.parametrize("step", [", ".join(s) for s in itertools.product(STEPS, repeat=3)])
def test_names_step_at_once(tmp_path, step):
    members = f"""
    @func
    def f(x: Tensor[(4,), "f32"]):
        a, b, c = x, x * 2.0, x * 4.0
        for i in range(3):
            a, b, c = {step}
        return a, b, c
    """
    x = torch.arange(1.0, 5.0)
    got = run(tmp_path, members, x)
    for found, expected in zip(got, stepped(step, 3, x, x * 2, x * 4), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("step", ["b, a, c", "c, a, b", "a + b, a, b"])
def test_names_step_at_once_where_units_make_different_trips(tmp_path, step):
    members = f"""
    @func
    def f(x: Tensor[(3,), "f32"]):
        out = tf.empty(Tensor[(4, 3), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            a, b, c = x[0:1], x[1:2], x[2:3]
            for i in range(cta.c):
                a, b, c = {step}
            row = tf.reshape(tf.concat(a, b, c, axis=0), (1, 3))
            out = tf.insert_slice(out, row, (cta.c, 0))
        return out
    """
    x = torch.tensor([1.0, 2.0, 4.0])
    (got,) = run(tmp_path, members, x)
    expected = [torch.stack(stepped(step, trips, *x)) for trips in range(4)]
    assert torch.equal(got, torch.stack(expected))


@pytest.mark.parametrize("word", ["max", "min", "abs_max", "argmax"])
def test_an_open_axis_that_is_empty_has_no_largest_element(tmp_path, word):
    call = "tf.argmax(x, axis=0)" if word == "argmax" else f"tf.reduce(x, (-2,), False, '{word}')"
    members = f"""
    @func
    def f(x: Tensor[(N, 2), "f32"]):
        return {call}
    """
    with pytest.raises(Refusal) as caught:
        run(tmp_path, members, torch.zeros(0, 2))
    (found,) = caught.value.diags
    assert found.code == "reduce-empty" and found.fields["axis"] == 0 and found.text()
    (kept,) = run(tmp_path, members, torch.ones(1, 2))
    assert kept.tolist() == ([0, 0] if word == "argmax" else [1.0, 1.0])
