"""A scope that divides a warpgroup: its wgmma statements stay those of all 128 threads."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.ir.dtype import BF16
from tilefoundry.ir.mesh import enter, narrow
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.program import Advance, Counter, Issue, Scalar, Sync, When, With, walk
from tilefoundry.tir.rewrite import mapped
from tilefoundry.verify import verify
from tilefoundry.verify.roles import layout

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from faults import FAMILY, faults, swap
from samples import LEVELS, gemm

ONE_WARP, OTHERS = slice(0, 32), slice(32, 128)
SMALL = {"ctas": 1, "tiles": (2, 1)}


def codes(func):
    return {f.code for f in verify(func)}


def within(func, group, lanes, *body):
    """``body`` by the threads ``lanes`` of a warpgroup of the block."""
    outer = func.body[0].body[0]
    own = narrow(outer.own, (group, lanes))
    return With(own, enter(func.body[0].mesh, own, LEVELS), "some", body)


def divided(func, group=1, lanes=ONE_WARP):
    """Some threads of a warpgroup have something of their own to do, of no effect."""
    own = Counter("own")
    scope = within(func, group, lanes, Advance(own))
    outer = func.body[0]
    inner = replace(outer.body[0], body=(scope, *outer.body[0].body))
    return replace(func, body=(replace(outer, body=(inner,)),), counters=(*func.counters, own))


def parts(func):
    return [[len(r.threads) for r in group] for group in layout(func).divided]


@pytest.mark.parametrize(
    ("group", "lanes", "sizes"),
    [
        (1, ONE_WARP, [[32, 96]]),
        (1, slice(0, 1), [[1, 127]]),
        (2, slice(64, 128), [[64, 64]]),
        (slice(1, 3), slice(0, 32), [[32, 96], [32, 96]]),  # neither spans the two groups
        (0, ONE_WARP, []),  # the producer's
    ],
)
def test_the_parts_of_a_warpgroup(group, lanes, sizes):
    assert parts(divided(gemm(), group, lanes)) == sizes
    assert verify(divided(gemm(), group, lanes)) == ()


@pytest.mark.parametrize("lanes", [ONE_WARP, slice(0, 1), slice(32, 128)], ids=str)
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_divided_group_is_accepted_as_the_whole_is(groups, stages, lanes):
    for k_steps in (0, 1, 2, 5, 9):
        func = gemm(k_steps=k_steps, groups=groups, stages=stages, storer="own", **SMALL)
        assert verify(divided(func, lanes=lanes)) == (), k_steps


@pytest.mark.parametrize("variant", [{}, {"stages": 1, "k_steps": 3}, {"groups": 1, "k_steps": 7}])
def test_faults_are_caught_in_a_divided_group(variant):
    # the faults of the program as it was: dividing it changes nothing
    for fault in faults(gemm(**SMALL, **variant)):
        found = codes(divided(fault.func))
        assert found & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {found}"


def wrapped(func, kind, make):
    """Every statement of a kind replaced by what ``make`` gives for it."""

    def change(stmt):
        mine = stmt.instr if isinstance(stmt, Issue) else getattr(stmt, "kind", None)
        return make(stmt) if mine == kind else (stmt,)

    return replace(func, body=mapped(func.body, change))


@pytest.mark.parametrize("kind", ["tiled_mma", "wgmma_fence", "wgmma_commit", "wgmma_wait"])
def test_one_warp_leaves_out_a_statement_of_its_group(kind):
    func = gemm(groups=1, **SMALL)
    mesh = next(m for s, m in walk(func.body) if getattr(s, "instr", "") == "tiled_mma")
    warp = mesh.coordinate("warp", "thread")
    found = verify(wrapped(func, kind, lambda s: (When(warp, (s,)),)))
    assert [f.code for f in found].count("sync-participants") == 1


def test_one_warp_runs_ahead():
    # without a wait of its own, it issues before the operands are there
    func = gemm(groups=1, **SMALL)
    wait = next(s for s, _ in walk(func.body) if getattr(s, "why", "").endswith("filled"))
    early = within(func, 1, OTHERS, wait)
    assert "sync-race" in codes(swap(func, wait, early))


@pytest.mark.parametrize("first", [True, False])
def test_a_wgmma_needs_all_parts(first):
    # a warp meets the others once the wgmma retired; they come before they issue it, or after
    func = gemm(groups=1, stages=1, **SMALL)
    mma = next(s for s, _ in walk(func.body) if getattr(s, "instr", "") == "tiled_mma")
    wait = next(s for s, _ in walk(func.body) if getattr(s, "kind", "") == "wgmma_wait")
    meet = Sync("barrier", id=3, threads=128)
    others = within(func, 1, OTHERS, meet)
    func = swap(func, wait, wait, within(func, 1, ONE_WARP, meet))
    func = swap(func, mma, *((others, mma) if first else (mma, others)))
    assert codes(func) == ({"sync-deadlock"} if first else set())


def test_parts_issue_one_wgmma_with_one_operand():
    # every second warp takes its operand from another slot
    func = gemm(groups=1, stages=2, **SMALL)
    mma, mesh = next(x for x in walk(func.body) if getattr(x[0], "instr", "") == "tiled_mma")
    acc, lhs, rhs = mma.reads
    other = replace(lhs, slot=(lhs.slot + mesh.coordinate("warp", "thread")) % 2)
    assert "sync-participants" in codes(swap(func, mma, replace(mma, reads=(acc, other, rhs))))


@pytest.mark.parametrize("divide", [lambda f: f, divided], ids=["whole", "divided"])
def test_a_wgmma_that_nobody_reads_is_waited_for(divide):
    func = gemm(groups=1, k_steps=1, stages=1, **{**SMALL, "tiles": (1, 1)})
    unread = wrapped(func, "cast", lambda s: (Issue("fill", (Scalar(0.0, BF16),), s.writes),))
    assert verify(divide(unread)) == ()
    bare = wrapped(unread, "wgmma_wait", lambda s: ())
    assert codes(divide(bare)) == {"sync-drain"}


AGAIN = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

wgmma = T.cuda.sm90.Wgmma(
    n=64, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K
)
SHAPE, NAMES = (2, 4, 8, 4), ("g", "w", "l8", "l4")


@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 1), Topology("thread", 256)),
)
class Program:
    @func
    def f(
        x: Tensor[(128, 128), "bf16"], y: Tensor[(128, 64), "bf16"]
    ) -> Tensor[(128, 64), "bf16"]:
        with Mesh(("cta",), layout=(1,), names=("c",)) as cta:
            with Mesh(("thread",), layout=SHAPE, names=NAMES) as use:
                layout = Layout((128, (2, 64)), (64, (8192, 1))) | Swizzle(3, 4, 3)
                a = tf.schedule(
                    (x, tf.empty(Tensor[(128, 128), "bf16", layout, "smem"])), op=T.copy()
                )
                mine = (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 8, 4 @ use.l4, 2)
                held = tf.reshard(y, mine, "rmem")
                for n in range(3):
                    tile = tf.empty(
                        Tensor[(128, 64), "bf16", Layout((128, 64)) | Swizzle(3, 4, 3), "smem"]
                    )
                    b = tf.schedule((held, tile), op=T.copy())
                    acc = tf.zeros(Tensor[(128, 64), "f32", mine, "rmem"])
                    held = tf.cast(
                        tf.schedule((acc, a, b), op=T.tiled_mma(atom=wgmma)), "bf16"
                    )
                out = tf.reshard(held, storage="gmem")
        return out
"""


def test_an_operand_of_the_accumulators_shape_is_read_by_all(tmp_path):
    """B (128, 64) is held by the threads as the accumulator (128, 64) is, and each warpgroup
    reads all of it: neither may write its rows again before the other has read them."""
    path = tmp_path / "again.py"
    path.write_text(AGAIN, encoding="utf-8")
    loaded = load_source(str(path), None, {})
    (func,) = lower(loaded.module, loaded.func).kernels.values()
    assert not codes(func)
    tile = [
        s for s, _ in walk(func.body)
        if isinstance(s, Sync) and s.kind == "barrier" and s.why.startswith("tile ")
    ]  # fmt: skip
    assert [s.why for s in tile] == ["tile read, then tile written", "tile written, then tile read"]
    for barrier in tile:
        fault = swap(func, barrier, replace(barrier, kind="warp", id=0, threads=0))
        assert "sync-race" in codes(fault)
