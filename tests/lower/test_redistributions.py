"""A copy from every distribution of a value to every other, by ``tf.reshard`` and scheduled: right
under all policies of the interpreter, or refused, never something else."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.program import Issue, Sync, walk
from tilefoundry.verify import verify

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from faults import FAMILY, faults
from trapped import kernel, right

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=({levels}Topology("cta", 2), Topology("thread", 64)),
)
class Program:
    @func
    def f(x: Tensor[(2, 64), "f32"]) -> Tensor[(2, 2, 64), "f32"]:
        out = tf.empty(Tensor[(2, 2, 64), "f32"])
        with Mesh({mesh}) as cta:
            with Mesh(("thread",), layout=(64,), names=("t",)) as t:
{body}
                every = tf.reshard(b, (2, 64 @ t.t), "rmem")
                out = tf.insert_slice(out, tf.reshape(every, (1, 2, 64)), (cta.c, 0, 0))
        return out
"""
CLUSTER = {"levels": 'Topology("cluster", 1), ',
           "mesh": '("cluster", "cta"), layout=((1,), (2,)), names=("g", "c")'}  # fmt: skip
GRID = {"levels": "", "mesh": '("cta",), layout=(2,), names=("c",)'}
ALL, BY_CTA = "(2, 64)", "(2 @ cta.c, 64)"
BY_THREAD, BY_BOTH = "(2, 64 @ t.t)", "(2 @ cta.c, 64 @ t.t)"
PLACES = [("rmem", ALL), ("rmem", BY_THREAD), ("rmem", BY_BOTH), ("smem", ALL), ("smem", BY_CTA)]
RESHARD = """\
a = tf.reshard(x, {0[1]}, "{0[0]}")
b = tf.reshard(a, {1[1]}, "{1[0]}")"""
COPY = """\
a = tf.reshard(x, {0[1]}, "{0[0]}")
room = tf.empty(Tensor[(2, 64), "f32", {1[1]}, "{1[0]}"])
b = tf.schedule((a, room), op=T.copy())"""
LOAD = """\
room = tf.empty(Tensor[(2, 64), "f32", (2 @ cta.c, 64), "smem"])
b = tf.schedule((x, room), op=T.{load}())"""


def program(folder, level, body, *given, **words):
    lines = "\n".join(" " * 16 + line for line in body.format(*given, **words).splitlines())
    path = folder / "program.py"
    path.write_text(HEAD.format(body=lines, **level), encoding="utf-8")
    return load_source(str(path), None, {})


def has(what, other):
    """Whoever is to hold ``other`` can reach it, by hand: registers are a thread's and shared
    memory a CTA's, which others of its cluster read into registers."""
    (_, split), (to, wanted) = what, other
    threads = "t.t" in split and "t.t" not in wanted and to == "rmem"
    return not threads and ("cta.c" not in split or "cta.c" in wanted)


@pytest.mark.parametrize("body", [RESHARD, COPY], ids=["reshard", "copy"])
@pytest.mark.parametrize(("before", "after"), [*itertools.product(PLACES, PLACES)],
                         ids=lambda place: "-".join(place))  # fmt: skip
def test_what_is_lowered_is_right(tmp_path, body, before, after):
    try:
        right(program(tmp_path, CLUSTER, body, before, after))
    except Refusal as refusal:
        assert refusal.diags[0].code == "lower-exchange"
        assert not has(before, after) or (after == ("rmem", BY_BOTH))  # not all CTAs' afterwards
    else:
        peers = before == ("smem", BY_CTA) and after[0] == "rmem"
        assert has(before, after) or peers


@pytest.mark.parametrize("body", [RESHARD, COPY], ids=["reshard", "copy"])
def test_ctas_of_no_cluster_hold_what_they_hold(tmp_path, body):
    for before, after in (
        (("rmem", BY_BOTH), ("smem", ALL)), (("rmem", BY_BOTH), ("rmem", BY_THREAD)),
        (("smem", BY_CTA), ("rmem", BY_THREAD)), (("smem", BY_CTA), ("smem", ALL)),
    ):  # fmt: skip
        with pytest.raises(Refusal) as refusal:
            lower(program(tmp_path, GRID, body, before, after).module, "f")
        assert refusal.value.diags[0].code == "lower-exchange"


@pytest.mark.parametrize("load", ["copy", "copy_async", "copy_async_tensor"])
def test_each_cta_loads_its_part_and_reads_the_others(tmp_path, load):
    func = kernel(right(program(tmp_path, CLUSTER, LOAD, load=load)))
    issues = [s for s, _ in walk(func.body) if isinstance(s, Issue)]
    first = next(s for s in issues if s.instr == load)
    assert first.writes[0].shape == (1, 64) and "peer" not in first.attrs
    assert all("multicast" not in s.attrs for s in issues)  # the parts differ
    assert [s.attrs["peer"] for s in issues if "peer" in s.attrs] == [0, 1]
    told = [s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind == "arrive" and s.over]
    assert told and not told[0].read
    for fault in faults(func):
        families = {f.code for f in verify(fault.func)}
        assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"
