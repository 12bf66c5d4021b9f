"""Device memory that a scope of cores makes: each core has a copy, and reads what it wrote."""

import textwrap

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.interpret import run_program
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

HEAD = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target


@module(
    entry="run",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 2), Topology("lane", 8)),
)
class Run:
    @func
    def run(x: Tensor[(2, 8), "f32"]) -> Tensor[(2, 8), "f32"]:
        out = tf.empty(Tensor[(2, 8), "f32"])
        with Mesh(("core",), layout=(2,), names=("c",)) as cores:
            with Mesh(("lane",), layout=(8,), names=("l",)) as t:
                c = cores.c
                v = tf.reshard(x[c:c + 1, :], (1, 8 @ t.l), "rmem") * 2.0
"""
TAIL = """
                out = tf.insert_slice(out, w, (c, 0))
        return out
"""
READ = 'w = tf.reshard(buf[{}, :], (1, 8 @ t.l), "rmem")'
ONE = 'buf = tf.insert_slice(tf.empty(Tensor[(2, 8), "f32"]), v, (c, 0))\n'
LOOP = """\
buf = tf.empty(Tensor[(6, 8), "f32"])
for i in range({}):
    buf = tf.insert_slice(buf, v, ({}, 0))
for j in range({}):
"""
KEPT = "    " + 'out = tf.insert_slice(out, tf.reshard(buf[{}, :], (1, 8 @ t.l), "rmem"), (c, 0))\n'
OWN = {
    "its row": ONE + READ.format("c:c + 1"),
    "its rows, another way around": LOOP.format("2", "c * 2 + i", "2")
    + KEPT.format("c * 2 + 1 - j:c * 2 + 2 - j") + "w = v",
    "every second row": LOOP.format("c, 6, 2", "i", "c, 6, 2") + KEPT.format("j:j + 1") + "w = v",
}  # fmt: skip
OTHERS = {
    "the other's row": (ONE + READ.format("1 - c:2 - c"), "sync-device-memory"),
    "all rows": (
        ONE + 'w = tf.reduce(tf.reshard(buf, (2, 8 @ t.l), "rmem"), (0,), True)',
        "sync-device-memory",
    ),
    "every second row of the other": (
        LOOP.format("c, 6, 2", "i", "1 - c, 6, 2") + KEPT.format("j:j + 1") + "w = v",
        "sync-device-memory",
    ),
    "its row, which the other wrote after it": (
        ONE + "buf = tf.insert_slice(buf, v + 1.0, (1 - c, 0))\n" + READ.format("c:c + 1"),
        "sync-device-memory",
    ),
    "all rows, of which it filled the other's": (
        "zero = tf.zeros(Tensor[(2, 8), \"f32\", (2, 8 @ t.l), \"rmem\"])\n"
        'buf = tf.insert_slice(tf.reshard(zero, (2, 8), "gmem"), v, (c, 0))\n'
        'w = tf.reduce(tf.reshard(buf, (2, 8 @ t.l), "rmem"), (0,), True)',
        "sync-device-memory",
    ),
    "a row more than it wrote": (
        LOOP.format("2", "c * 2 + i", "3") + KEPT.format("c * 2 + j:c * 2 + j + 1") + "w = v",
        "tir-unverified",
    ),
}


def loaded(tmp_path, body):
    path = tmp_path / "run.py"
    path.write_text(HEAD + textwrap.indent(body, " " * 16) + TAIL)
    return load_source(str(path), None, {})


@pytest.mark.parametrize("name", OWN)
def test_what_a_core_wrote_it_reads(name, tmp_path):
    made, _ = finalize(loaded(tmp_path, OWN[name]))
    copies = [b for b in made.kernels["run"].buffers if b.storage == "gmem"]
    assert len(copies) == 1  # nothing is copied from what a loop starts with
    x = torch.randn(2, 8)
    found = run_program(made, {"x": x})
    assert found.reports == []
    assert torch.equal(found.outputs[0], 2 * x)


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_core_wrote_is_refused(name, tmp_path):
    body, code = OTHERS[name]
    with pytest.raises(Refusal) as caught:
        finalize(loaded(tmp_path, body))
    assert {d.code for d in caught.value.diags} == {code}
