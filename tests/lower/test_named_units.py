"""A kernel is run by the units that its meshes name, fewer than declared: what all of them meet
at counts those, in every stage."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize
from tilefoundry.tir.program import Sync, walk
from tilefoundry.verify import verify

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps")]
from faults import swap
from trapped import right

TWO = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 8), Topology("thread", 256)),
)
class Program:
    @func
    def f(x: Tensor[(4, 64), "f32"]) -> Tensor[(4, 64), "f32"]:
        return doubled(loaded(x))

    @func
    def loaded(x: Tensor[(4, 64), "f32"]) -> Tensor[(4, 64), "f32"]:
        out = tf.empty(Tensor[(4, 64), "f32"])
        with Mesh(("cta",), layout=(4,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(64,), names=("t",)) as t:
                room = tf.empty(Tensor[(1, 64), "f32", "smem"])
                tile = tf.schedule((x[cta.c:cta.c + 1, :], room), op=T.copy_async_tensor())
                out = tf.insert_slice(out, tf.reshard(tile, (1, 64 @ t.t), "rmem"), (cta.c, 0))
        return out

    @func
    def doubled(x: Tensor[(4, 64), "f32"]) -> Tensor[(4, 64), "f32"]:
        out = tf.empty(Tensor[(4, 64), "f32"])
        with Mesh(("cta",), layout=(2,), names=("c",)) as cta:
            with Mesh(("thread",), layout=(128,), names=("t",)) as t:
                held = tf.reshard(x[2 * cta.c:2 * cta.c + 2, :], (2, 64), "smem")
                mine = tf.reshard(held, (2, 64), "rmem")
                out = tf.insert_slice(out, mine + mine, (2 * cta.c, 0))
        return out
"""


def program(folder):
    path = folder / "program.py"
    path.write_text(TWO, encoding="utf-8")
    return load_source(str(path), None, {})


def sizes(func):
    return {t.level: t.size for t in func.topologies}


def test_each_kernel_has_the_units_that_it_names(tmp_path):
    made = right(program(tmp_path))
    assert {n: sizes(k) for n, k in made.kernels.items()} == {
        "loaded": {"cta": 4, "thread": 64}, "doubled": {"cta": 2, "thread": 128},
    }  # fmt: skip
    launches = {p["kernel"]: (p["grid"], p["threads"]) for p in emit(made).launches}
    assert launches == {"loaded": (4, 64), "doubled": (2, 128)}


def test_whoever_is_launched_meets(tmp_path):
    made, _ = finalize(program(tmp_path))
    for func in made.kernels.values():
        threads = sizes(func)["thread"]
        meetings = [s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind == "barrier"]
        assert all(s.threads == threads for s in meetings)
    func = made.kernels["loaded"]
    (setup,) = [s for s, _ in walk(func.body) if isinstance(s, Sync) and "init" in s.why]
    declared = swap(func, setup, replace(setup, threads=256))  # as declared for the module
    assert {f.code for f in verify(declared)} & {"sync-deadlock", "sync-barrier"}
