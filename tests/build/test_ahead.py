"""Loads that ask ahead: the values of plain ones, each line asked for once and where said."""

from __future__ import annotations

import re

import pytest
import torch
from test_cpu_programs import FAST

from tilefoundry.build import build
from tilefoundry.build.call import Compiled
from tilefoundry.diag import Refusal
from tilefoundry.emit import emit
from tilefoundry.ir.dtype import DTYPES
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

DOUBLED = """
from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE, LANES, VECS, AHEAD, LOAD, TURNED = 1000, "f32", 8, 4, 512, "ahead", False
CHUNK = LANES * VECS
STEPS = ceildiv(N, CHUNK)
FORM = "one"
FORMS = {"one": AHEAD, "two": (AHEAD, 64), "zero": (AHEAD, 0), "three": (AHEAD, 64, 8), "none": ()}
load = T.x86.LoadAhead() if LOAD == "ahead" else T.copy()


@module(
    entry="doubled",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", 1), Topology("lane", LANES)),
)
class Doubled:
    @func
    def doubled(x: Tensor[(N,), DTYPE]) -> Tensor[(N,), DTYPE]:
        padded = tf.pad(x, (0, STEPS * CHUNK - N), 0)
        out = tf.empty(Tensor[(STEPS * CHUNK,), DTYPE])
        with Mesh(("core",), layout=(1,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(STEPS):
                    at = step * CHUNK
                    if TURNED:
                        held = tf.empty(Tensor[(CHUNK,), DTYPE, (LANES @ t.lane, VECS), "rmem"])
                    else:
                        held = tf.empty(Tensor[(CHUNK,), DTYPE, (VECS, LANES @ t.lane), "rmem"])
                    v = tf.schedule((padded[at:at + CHUNK], held), op=load, prefetch=FORMS[FORM])
                    out = tf.insert_slice(out, v + v, (at,))
        return out[:N]
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("ahead") / "doubled.py"
    path.write_text(DOUBLED)
    return lambda **consts: load_source(str(path), None, consts)


@pytest.mark.parametrize(("dtype", "n"), [("f32", 1000), ("f32", 5), ("bf16", 777), ("i8", 64)])
def test_it_loads_what_a_plain_load_does(loaded, dtype, n):
    kernel = Compiled(build(loaded(DTYPE=dtype, N=n), FAST))
    x = torch.arange(n).remainder(50).to(getattr(torch, str(DTYPES[dtype].torch)))
    assert torch.equal(kernel(x), x + x)


@pytest.mark.parametrize(("dtype", "lines"), [("f32", 2), ("bf16", 1), ("f64", 4)])
@pytest.mark.parametrize("ahead", [64, 512])
def test_each_line_is_asked_for_once_and_as_far_ahead_as_said(loaded, dtype, lines, ahead):
    """Four vectors of 8: 64 bytes hold two of f32, four of bf16, one of f64."""
    text = emit(finalize(loaded(N=1024, DTYPE=dtype, AHEAD=ahead))[0]).files["doubled.c"]
    asked = re.findall(r"TF_AHEAD\(x \+ .*?(\d+)\);", text)
    assert [int(a) for a in asked] == [ahead + 32 // lines * n for n in range(lines)]


def test_the_first_cache_is_asked_as_far_ahead_as_the_second_number_says(loaded):
    text = emit(finalize(loaded(N=1024, FORM="two"))[0]).files["doubled.c"]
    for call, ahead in (("TF_AHEAD", 512), ("TF_NEAR", 64)):
        asked = re.findall(call + r"\(x \+ .*?(\d+)\);", text)
        assert [int(a) for a in asked] == [ahead, ahead + 16]
    kernel = Compiled(build(loaded(N=1024, FORM="two"), FAST))
    assert torch.equal(kernel(torch.ones(1024)), torch.full((1024,), 2.0))


@pytest.mark.parametrize(
    ("consts", "code"),
    [
        ({"LOAD": "plain"}, "schedule-prefetch"),
        ({"AHEAD": 0}, "schedule-prefetch"),
        ({"FORM": "zero"}, "schedule-prefetch"),
        ({"FORM": "three"}, "schedule-prefetch"),
        ({"FORM": "none"}, "schedule-prefetch"),
        ({"TURNED": True}, "contract-unmet"),
    ],
)
def test_what_asks_for_nothing_is_refused(loaded, consts, code):
    with pytest.raises(Refusal) as caught:
        loaded(**consts)
    assert {d.code for d in caught.value.diags} == {code}
