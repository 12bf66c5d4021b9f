"""The table of values that differ between units, held against the evaluator's own lanes."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from programs.sizes import path
from tilefoundry.check.vary import vary
from tilefoundry.diag import Refusal
from tilefoundry.evaluate import evaluate
from tilefoundry.evaluate.run import Run
from tilefoundry.evaluate.trips import Trips
from tilefoundry.ir.node import Loop, nodes, walk
from tilefoundry.lang.load import load_source
from tilefoundry.lang.parse import module_context

CASES = Path(__file__).parents[1] / "cases"
HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 4), Topology("thread", 32)),
)
class Program:
    @func
    def f(x: Tensor[(16, 8), "f32"]):
        out = tf.zeros(Tensor[(16, 8), "f32"])
        with Mesh(("cta",), layout=(2, 2), names=("a", "b")) as cta:
"""


def program(body, tmp_path):
    text = HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 12)
    path = tmp_path / "program.py"
    path.write_text(f"{text}\n        return out\n", encoding="utf-8")
    return load_source(str(path), None, {})


def table(loaded):
    """Axis names by the author's name, of the last value that has it."""
    func = loaded.module.funcs[loaded.func]
    found = vary(func, module_context(loaded.module))
    return {n.name: "".join(sorted(a.name for a in axes)) for n, axes in found.items() if n.name}


PROGRAMS = {
    "slice at a coordinate": (
        "part = x[cta.a * 8:cta.a * 8 + 8]\nmore = part * 2.0",
        {"part": "a", "more": "a"},
    ),
    "two coordinates": (
        "row = x[cta.a * 8 + cta.b]\nplain = x * 2.0",
        {"row": "ab", "plain": ""},
    ),
    "index that does not depend on its coordinate": (
        "row = x[cta.a // 2]",
        {"row": ""},
    ),
    "number": ("y = x * cta.b", {"y": "b"}),
    "own part": (
        'rows = tf.reshard(x, (16 @ cta.b, 8), "rmem")\nmine = tf.local(rows)',
        {"rows": "", "mine": "b"},
    ),
    "writes into shared memory": (
        "part = x[cta.a * 8:cta.a * 8 + 8] * 2.0\nout = tf.insert_slice(out, part, (cta.a * 8, 0))",
        {"part": "a", "out": ""},
    ),
    "writes into registers": (
        """
        mine = tf.zeros(Tensor[(16, 8), "f32", "rmem"])
        mine = tf.insert_slice(mine, x[cta.a:cta.a + 1], (0, 0))
        """,
        {"mine": "a"},
    ),
    "loop from a coordinate": (
        """
        total = tf.zeros(Tensor[(8,), "f32", "rmem"])
        for k in range(cta.a, 16, 2):
            row = x[k]
            total = total + row
        """,
        {"row": "a", "total": "a"},
    ),
    "uneven trips": (
        """
        y = x
        for k in range(cta.b):
            y = y * 2.0
        """,
        {"y": "b"},
    ),
    "even trips from a coordinate": (
        """
        y = x
        for k in range(cta.b, cta.b + 2):
            y = y * 2.0
        """,
        {"y": ""},
    ),
    "persistent tasks": (
        """
        for task in range(cta.a * 2 + cta.b, 16, 4):
            row = tf.exp(x[task:task + 1])
            out = tf.insert_slice(out, row, (task, 0))
        """,
        {"row": "ab", "out": ""},
    ),
    "persistent tasks with an inner loop": (
        """
        for task in range(cta.a, 16, 3):
            for k in tf.tile(8, 4):
                piece = x[task:task + 1, k] + 1.0
                out = tf.insert_slice(out, piece, (task, k.start))
        """,
        {"piece": "a", "out": ""},
    ),
    "private writes in uneven trips": (
        """
        mine = tf.zeros(Tensor[(16, 8), "f32", "rmem"])
        for k in range(cta.a):
            mine = tf.insert_slice(mine, x[0:1], (0, 0))
        """,
        {"mine": "a"},
    ),
    "what differs moves from name to name": (
        """
        p = tf.zeros(Tensor[(8,), "f32", "rmem"])
        q = tf.zeros(Tensor[(8,), "f32", "rmem"])
        r = tf.zeros(Tensor[(8,), "f32", "rmem"])
        for k in range(4):
            r = q * 2.0
            q = p * 2.0
            p = tf.reshard(x[cta.a], storage="rmem")
        """,
        {"p": "a", "q": "a", "r": "a"},
    ),
    "threads inside": (
        """
        with Mesh(("thread",), layout=(32,), names=("t",)) as thread:
            both = x[cta.a, thread.t // 4:thread.t // 4 + 1]
            mine = x[:, thread.t // 4]
        """,
        {"both": "at", "mine": "t"},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_axes(name, tmp_path):
    body, expected = PROGRAMS[name]
    found = table(program(body, tmp_path))
    assert {n: found[n] for n in expected} == expected


def units_of(lanes):
    """The axes that are a mesh's: trips of a loop evaluated together are an axis too."""
    return {a for a in lanes.axes if not isinstance(a, Trips)}


def seen(loaded, inputs, monkeypatch):
    """The axes that the evaluator kept values apart on, by node."""
    axes = defaultdict(set)
    plain_node, plain_loop = Run.node, Run.loop

    def node(self, stmt):
        lanes = plain_node(self, stmt)
        axes[stmt] |= units_of(lanes)
        return lanes

    def loop(self, stmt):
        plain_loop(self, stmt)
        for c in stmt.carried:
            axes[c.result] |= units_of(self.values[c.result])

    monkeypatch.setattr(Run, "node", node)
    monkeypatch.setattr(Run, "loop", loop)
    evaluate(loaded.module, loaded.func, inputs)
    return axes


def hold(loaded, inputs, monkeypatch):
    func = loaded.module.funcs[loaded.func]
    found = vary(func, module_context(loaded.module))
    for node, axes in seen(loaded, inputs, monkeypatch).items():
        assert axes <= found[node], node


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_evaluator_keeps_nothing_apart_that_the_table_does_not(name, tmp_path, monkeypatch):
    hold(program(PROGRAMS[name][0], tmp_path), [torch.randn(16, 8)], monkeypatch)


@pytest.mark.parametrize(
    "file, consts, shapes",
    [
        ("gemm_grid.py", {"M": 256, "N": 512, "K": 128}, [(256, 128), (128, 512)]),
        (
            path("gemm_optimal"),
            {"M": 2048, "N": 512, "K": 128, "CTAS": 5},
            [(2048, 128), (128, 512)],
        ),
    ],
)
def test_the_posts_programs(file, consts, shapes, monkeypatch):
    loaded = load_source(str(CASES / file), None, consts)
    hold(loaded, [torch.randn(s).to(torch.bfloat16) for s in shapes], monkeypatch)


def test_long_programs_take_linear_time(tmp_path):
    """Every statement is visited a fixed number of times, however many there are."""
    body = "y = x[cta.a]\n" + "y = y * 2.0\n" * 1000
    loaded = program(body, tmp_path)
    func = loaded.module.funcs[loaded.func]
    assert sum(1 for _ in nodes(func.body)) > 1000
    found = vary(func, module_context(loaded.module))
    assert {a.name for n in nodes(func.body) if n.name == "y" for a in found[n]} == {"a"}


def test_every_value_is_in_the_table(tmp_path):
    loaded = program(PROGRAMS["persistent tasks with an inner loop"][0], tmp_path)
    func = loaded.module.funcs[loaded.func]
    found = vary(func, module_context(loaded.module))
    assert set(func.params) <= set(found)
    for stmt in walk(func.body):
        if isinstance(stmt, Loop):
            assert {n for c in stmt.carried for n in (c.head, c.result)} <= set(found)
    assert set(nodes(func.body)) <= set(found)


def test_a_split_of_one_unit_may_differ(tmp_path):
    """An axis of one unit splits nothing: its only unit holds all of it."""
    body = """
    with Mesh(("thread",), layout=(1, 32), names=("one", "t")) as thread:
        rows = tf.reshard(x, (1 @ thread.one, 16, 8), "rmem")
        row = rows[cta.a]
    """
    assert table(program(body, tmp_path))["row"] == "a"


def test_uses_outside_are_refused_where_they_stand(tmp_path):
    body = "y = x * 2.0\nout = tf.insert_slice(out, y[cta.a:cta.a + 1], (0, 0))"
    assert table(program(body, tmp_path))["out"] == ""
    text = HEAD + "            pass\n"
    text += "        row = x[cta.a]\n        return out\n"
    path = tmp_path / "outside.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        load_source(str(path), None, {})
    (found,) = caught.value.diags
    assert (found.code, found.span.line) == ("unit-value-outside", text.count("\n") - 1)
