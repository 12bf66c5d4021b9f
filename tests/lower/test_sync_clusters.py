"""What is derived for CTAs that reach each other's shared memory, and what is refused."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.printer import print_program
from tilefoundry.tir.program import Issue, Sync, With, walk
from tilefoundry.tir.rewrite import mapped
from tilefoundry.verify import verify

sys.path += [str(Path(__file__).parents[1] / x) for x in ("tir", "traps", "programs")]
import sizes
from faults import FAMILY, faults, swap
from trapped import kernel, right, seen

CLUSTER = ("drop-cluster", "arrive-here", "load-here", "bytes+16", "bytes-16", "count-1", "parity")
"""Faults of synchronisation across CTAs that an execution shows as well."""

HEAD = """\
from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

@module(
    entry="f",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", {clusters}), Topology("cta", {ctas}), Topology("thread", 64)),
)
class Program:
    @func
    def f(x: Tensor[({count}, 64, 64), "f32"]) -> Tensor[({count}, {units}, 64, 64), "f32"]:
        out = tf.empty(Tensor[({count}, {units}, 64, 64), "f32"])
        with Mesh(("cluster",), layout=({clusters},), names=("g",)) as cluster:
            with Mesh(("cta",), layout={shape}, names=("y", "z")) as cta:
                with Mesh(("thread",), layout=(64,), names=("t",)) as t:
                    for n in range({count}):
                        room = tf.empty(Tensor[(64, 64), "f32", "smem"], buffers={slots})
{body}
                        held = tf.reshard(tile, (64 @ t.t, 64), "rmem")
                        at = cluster.g * {ctas} + cta.y * {width} + cta.z
                        out = tf.insert_slice(out, tf.reshape(held, (1, 1, 64, 64)), (n, at, 0, 0))
        return out
"""
ALIKE = "tile = tf.schedule((x[n], room), op=T.copy_async_tensor())"
BY_ROW = "tile = tf.schedule((x[({count} + n - cta.y) % {count}], room), op=T.copy_async_tensor())"
TWICE = """\
first = tf.schedule((x[n], room), op=T.copy_async_tensor())
tile = tf.schedule((x[n], first), op=T.copy_async_tensor())"""


def program(folder, body, count=3, shape=(2, 2), slots=2, clusters=1):
    ctas = shape[0] * shape[1]
    words = {"count": count, "shape": shape, "slots": slots, "clusters": clusters, "ctas": ctas,
             "width": shape[1], "units": clusters * ctas}  # fmt: skip
    lines = "\n".join(" " * 24 + line for line in body.format(**words).splitlines())
    path = folder / "program.py"
    path.write_text(HEAD.format(body=lines, **words), encoding="utf-8")
    return load_source(str(path), None, {})


def statements(func, kind):
    return [s for s, _ in walk(func.body) if isinstance(s, Sync) and s.kind == kind]


def loads(func):
    issues = (s for s, _ in walk(func.body) if isinstance(s, Issue) and "barrier" in s.attrs)
    return [s for s in issues if s.instr == "copy_async_tensor"]


def lowered(case, consts):
    loaded = load_source(sizes.path(case), None, consts)
    return kernel(lower(loaded.module, loaded.func or ""))


def test_b_is_shared_and_a_is_not():
    func = lowered("gemm_halves@pair", sizes.EVALUATE["gemm_halves@pair"])
    a, b = loads(func)
    assert "multicast" not in a.attrs
    assert [axis.name for axis in b.attrs["multicast"]] == ["half"]
    # a CTA sends half of B's (64, 256) tile, and gets all of it beside its own (128, 64) of A
    assert b.writes[0].shape[0] * b.writes[0].shape[1] == 64 * 256 // 2
    (expect,) = statements(func, "expect")
    assert expect.bytes == 2 * (128 * 64 + 64 * 256)
    empty = next(b for b in func.barriers if b.name == "left_empty")
    assert empty.count == 2 * 2  # two warpgroups of two CTAs
    freed = [s for s in statements(func, "arrive") if s.barrier is empty]
    assert freed and all([axis.name for axis in s.over] == ["half"] for s in freed)
    (first,) = statements(func, "cluster")
    assert "initialised" in first.why


def test_stores_by_an_engine_are_issued_before_the_last_barrier_and_waited_for_inside():
    """What was sent to the others has arrived by then, and the barrier waits for nothing."""
    for case in ("gemm_halves@pair", "gemm_skinny"):
        func = lowered(case, sizes.INTERPRET[case])
        order = [s for s, _ in walk(func.body) if isinstance(s, (Issue, Sync))]
        (come,), (gone,) = statements(func, "cluster_arrive"), statements(func, "cluster_wait")
        stores = [s for s in order if isinstance(s, Issue) and s.writes[0].storage == "gmem"]
        assert stores and max(map(order.index, stores)) < order.index(come)
        between = order[order.index(come) + 1 : order.index(gone)]
        assert between and all(s.kind == "bulk_wait" and s.pending == 0 for s in between)
        assert order[-1] is gone and "no CTA" in gone.why


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("shape", [(2, 1), (2, 2)])
def test_the_threads_that_load_are_those_that_read(tmp_path, shape, slots):
    made = right(program(tmp_path, ALIKE, shape=shape, slots=slots))
    (load,) = loads(kernel(made))
    names = [a.name for a, extent in zip(load.attrs["multicast"], shape, strict=False)]
    assert names == (["y", "z"] if shape == (2, 2) else ["y"])
    (expect,) = statements(kernel(made), "expect")
    assert expect.bytes == 64 * 64 * 4


def test_along_the_axes_that_load_alike_only(tmp_path):
    made = right(program(tmp_path, BY_ROW))
    (load,) = loads(kernel(made))
    assert [a.name for a in load.attrs["multicast"]] == ["z"]
    text = print_program(made)
    assert "multicast=(cta.z,)" in text and "over=(cta.z,)" in text


def test_nothing_is_shared_without_clusters(tmp_path):
    loaded = load_source(sizes.path("gemm_own_storer"), None, sizes.EVALUATE["gemm_own_storer"])
    func = kernel(lower(loaded.module, loaded.func or ""))
    assert all("multicast" not in s.attrs for s in loads(func))
    assert not statements(func, "cluster")


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("shape", [(2, 1), (2, 2)])
def test_a_multicast_over_a_fill_that_nobody_read(tmp_path, shape, slots):
    """Bytes are counted where they come to: the loading warp of each CTA waits for its own and
    tells all, before any of them sends again."""
    func = kernel(right(program(tmp_path, TWICE, shape=shape, slots=slots)))
    told = next(s for s in statements(func, "arrive") if not s.read)
    assert told.over and told.barrier.count == shape[0] * shape[1]
    order = [s for s, _ in walk(func.body) if getattr(s, "barrier", None) or s in loads(func)]
    first, second = (order.index(s) for s in loads(func))
    kinds = [(s.kind, s.barrier is told.barrier) for s in order[first + 1 : second]]
    assert kinds == [("wait", False), ("arrive", True), ("wait", True), ("expect", False)]


def test_faults_of_fills_that_others_are_told_of_are_caught(tmp_path):
    loaded = program(tmp_path, TWICE, shape=(2, 1))
    func = kernel(lower(loaded.module, loaded.func or ""))
    assert verify(func) == ()
    for fault in faults(func):
        families = {f.code for f in verify(fault.func)}
        assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"


GATHER = """\
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
        with Mesh({mesh}, names=({names}"c")) as cta:
            with Mesh(("thread",), layout=(64,), names=("t",)) as t:
                mine = tf.reshard(x, (2 @ cta.c, 64 @ t.t), "rmem")
                shared = tf.reshard(mine * 3.0, (2 @ cta.c, 64), "smem")
                every = tf.reshard(shared, (2, 64 @ t.t), "rmem")
                again = tf.reshard(every + 1.0, (2 @ cta.c, 64), "smem")
                twice = tf.reshard(again, (2, 64 @ t.t), "rmem")
                out = tf.insert_slice(out, tf.reshape(twice, (1, 2, 64)), (cta.c, 0, 0))
        return out
"""
WITH = {"levels": 'Topology("cluster", 1), ', "mesh": '("cluster", "cta"), layout=((1,), (2,))',
        "names": '"g", '}  # fmt: skip


def gathered(folder, **words):
    path = folder / "program.py"
    path.write_text(GATHER.format(**words), encoding="utf-8")
    return load_source(str(path), None, {})


def test_a_value_split_over_a_cluster_is_read_where_it_lies(tmp_path):
    func = kernel(right(gathered(tmp_path, **WITH)))
    reads = [s for s, _ in walk(func.body) if isinstance(s, Issue) and "peer" in s.attrs]
    assert [s.attrs["peer"] for s in reads] == [0, 1, 0, 1]
    assert all([a.name for a in s.attrs["over"]] == ["c"] for s in reads)


def test_ctas_that_are_no_cluster_hold_what_they_hold(tmp_path):
    loaded = gathered(tmp_path, levels="", mesh='("cta",), layout=(2,)', names="")
    with pytest.raises(Refusal) as refusal:
        lower(loaded.module, loaded.func or "")
    assert refusal.value.diags[0].code == "lower-exchange"


def test_partial_tiles_of_a_cluster_are_added_where_they_lie():
    loaded = load_source(sizes.path("splitk_cluster"), None, sizes.INTERPRET["splitk_cluster"])
    func = kernel(right(loaded, policies=("random", "lagging-engines"), exact=False))
    (sum_,) = [s for s, _ in walk(func.body) if isinstance(s, Issue) and s.instr == "reduce"]
    assert sum_.attrs["scope"] == "cluster" and sum_.reads[0].storage == "smem"
    # each CTA keeps its own rows of the sum
    assert next(a.name for a in sum_.writes[0].buffer.layout.split_axes) == "split"


def test_results_are_stored_between_the_halves_of_the_last_barrier():
    """A CTA's shared memory is there until the others have read it; that its results have
    arrived in device memory concerns nobody."""
    func = lowered("splitk_cluster", sizes.INTERPRET["splitk_cluster"])
    (come,), (gone,) = statements(func, "cluster_arrive"), statements(func, "cluster_wait")
    order = [s for s, _ in walk(func.body) if isinstance(s, (Issue, Sync))]
    sum_ = next(s for s in order if isinstance(s, Issue) and s.instr == "reduce")
    stored = next(s for s in order if isinstance(s, Issue) and s.writes[0].storage == "gmem")
    places = [order.index(s) for s in (sum_, come, stored, gone)]
    assert places == sorted(places) and order[-1] is gone

    def early(stmt):
        if stmt is come:
            return ()
        return (replace(come), stmt) if _holds(stmt, sum_) else (stmt,)

    for fault in (swap(func, come), swap(func, gone), swap(func, come, come, replace(come)),
                  swap(func, come, come, replace(come, kind="cluster")),
                  replace(func, body=mapped(func.body, early))):  # fmt: skip
        assert {f.code for f in verify(fault)} & {"sync-barrier", "sync-drain"}
        assert seen(fault)


def _holds(scope, issue):
    """The outermost scope of fewer than all threads around an issue."""
    return isinstance(scope, With) and scope.mesh.count("thread") == 256 and any(
        s is issue for s, _ in walk(scope.body)
    )  # fmt: skip


def test_what_was_only_read_is_told_without_a_fence():
    """The slots of a ring: nothing written is handed over; a sum's terms are."""
    func = lowered("gemm_halves@pair", sizes.EVALUATE["gemm_halves@pair"])
    assert all(s.read for s in statements(func, "arrive") if s.over)
    func = lowered("softmax_cluster", sizes.EVALUATE["softmax_cluster"])
    told = {s.barrier.name: s.read for s in statements(func, "arrive")}
    assert told == {"most_shared_full": False, "most_shared_empty": True,
                    "total_shared_full": False, "total_shared_empty": True}  # fmt: skip
    full = [s for s in statements(func, "arrive") if not s.read]
    for sync in full:  # the verifier sees the difference
        assert "sync-race" in {f.code for f in verify(swap(func, sync, replace(sync, read=True)))}


def test_faults_across_ctas_are_caught(tmp_path):
    loaded = program(tmp_path, ALIKE, shape=(2, 1), count=5)
    func = kernel(lower(loaded.module, loaded.func or ""))
    assert verify(func) == ()
    kinds = set()
    for fault in faults(func):
        families = {f.code for f in verify(fault.func)}
        assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"
        if fault.kind in CLUSTER and fault.kind not in kinds:
            assert seen(fault.func), f"{fault.kind} at {fault.where}"
        kinds.add(fault.kind)
    assert set(CLUSTER) <= kinds


def test_faults_in_sums_over_a_cluster_are_caught():
    consts = {"ROWS": 3, "COLS": 2048, "CLUSTERS": 1, "CTAS": 2, "THREADS": 64}
    func = lowered("softmax_cluster", consts)
    for fault in faults(func):
        families = {f.code for f in verify(fault.func)}
        assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"
        if fault.kind in ("drop-cluster", "arrive-here", "drop-wait"):
            assert seen(fault.func), f"{fault.kind} at {fault.where}"
