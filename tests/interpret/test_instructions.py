"""Instructions, views and loops of the interpreter against torch and arithmetic by hand."""

import pytest
import torch
from kernels import LEVELS, Block, copy, kinds, sync

from tilefoundry.interpret import POLICIES, run
from tilefoundry.ir.dtype import BF16, F32, I32
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Mesh, arrange, enter
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.layout import Swizzle
from tilefoundry.tir.program import (
    Advance,
    Counter,
    For,
    Issue,
    Scalar,
    View,
    When,
    fresh_vars,
    whole,
    window,
)


def result(func, *inputs, **options):
    found = run(func, list(inputs), **options)
    assert [str(r) for r in found.reports] == []
    return found.outputs[0]


def op(name, reads, write, **attrs):
    given = tuple(whole(x) if not isinstance(x, (View, Scalar)) else x for x in reads)
    return Issue(name, given, (write if isinstance(write, View) else whole(write),), attrs)


def test_elementwise_is_bitwise_the_operation():
    b = Block(64)
    x, out = b.param("x", (256,)), b.param("out", (256,), BF16, "out")
    r, s, t = b.per_thread("r", 256), b.per_thread("s", 256), b.per_thread("t", 256, BF16)
    func = b.func(
        copy(x, r),
        op("unary", (r,), s, op="exp"),
        op("binary", (s, Scalar(0.1, F32)), s, kind="mul"),
        op("clamp", (s,), s, min_val=0.05, max_val=1.5),
        op("cast", (s,), t),
        copy(t, out),
    )
    given = torch.randn(256)
    want = torch.clamp(torch.exp(given) * torch.tensor(0.1), 0.05, 1.5).bfloat16()
    assert torch.equal(result(func, given), want)


def test_where_and_broadcast():
    b = Block(32)
    x, out = b.param("x", (4, 32)), b.param("out", (4, 32), role="out")
    (t,) = b.block.axes
    r = b.held("r", (4, 32), (4, 32), (None, t))
    row = b.held("row", (32,), (32,), (t,))
    from tilefoundry.ir.dtype import BOOL

    mask = b.held("mask", (4, 32), (4, 32), (None, t), dtype=BOOL)
    func = b.func(
        copy(x, r),
        op("reduce", (r,), row, axes=(0,), keepdim=False, kind="max"),
        op("binary", (r, row), mask, op="cmp_eq"),
        op("where", (mask, r, Scalar(-1.0, F32)), r),
        copy(r, out),
    )
    given = torch.randn(4, 32)
    top = given.max(0).values
    assert torch.equal(result(func, given), torch.where(given == top, given, torch.tensor(-1.0)))


def test_a_swizzled_tile_lies_as_the_swizzle_says():
    # facts: on a 128-byte-row bf16 tile under Swizzle(3, 4, 3), byte address of (row, column)
    places = {(1, 0): 144, (1, 8): 128, (7, 0): 1008, (8, 0): 1024, (1, 16): 176}
    b = Block(32)
    x, out = b.param("x", (16, 64), BF16), b.param("out", (1024,), BF16, "out")
    layout = ShardLayout((16, 64), (64, 1), (None, None), (), Swizzle(3, 4, 3))
    tile = b.shared("tile", (16, 64), BF16, layout=layout)
    raw = b.shared("raw", (1024,), BF16, at=0)
    func = b.func(copy(x, tile), sync("barrier", threads=32), copy(raw, out))
    given = torch.arange(1024).reshape(16, 64).bfloat16()
    found = run(func, [given])
    # the bytes are those of another buffer, which is told
    assert kinds(found) == {"overlap"}
    (got,) = found.outputs
    assert {k: float(got[v // 2]) for k, v in places.items()} == {
        k: float(given[k]) for k in places
    }


def test_a_transposed_view():
    b = Block(32)
    x, out = b.param("x", (8, 16)), b.param("out", (16, 8), role="out")
    i, j = fresh_vars((16, 8))
    turned = View(x, (16, 8), (i, j), (j.expr(), i.expr()))
    given = torch.randn(8, 16)
    assert torch.equal(result(b.func(copy(turned, out)), given), given.T)


def test_outside_of_a_masked_view_reads_fill_and_is_not_written():
    b = Block(32)
    x, out = b.param("x", (40,)), b.param("out", (40,), role="out")
    r = b.per_thread("r", 64)
    total = b.held("total", (64,), ((2, 32),), (None, b.block.axes[0]))
    (v,) = fresh_vars((64,))
    load, store = (View(y, (64,), (v,), (v.expr(),), fill=2.0) for y in (x, out))
    func = b.func(copy(load, r), op("binary", (r, r), total, kind="add"), copy(total, store))
    given = torch.randn(40)
    assert torch.equal(result(func, given), given + given)
    bare = View(x, (64,), (v,), (v.expr(),))
    assert kinds(run(b.func(copy(bare, r), copy(r, store)), [given])) == {"bounds"}


def test_each_unit_reads_its_own_window():
    """A view that depends on the thread: thread t takes element 3 t, by a loop per thread."""
    b = Block(64)
    x, out = b.param("x", (192,)), b.param("out", (64,), role="out")
    one = b.held("one", (1,))
    t = b.block.coordinate("t", "threads")
    func = b.func(
        copy(window(whole(x), (t * 3,), (1,)), one), copy(one, window(whole(out), (t,), (1,)))
    )
    given = torch.randn(192)
    assert torch.equal(result(func, given), given[::3])


def test_loops_whose_bounds_differ_among_threads():
    """Thread t sums x[t], x[t + 8], ... below 20: 3 terms for t < 4, else 2."""
    b = Block(8)
    x, out = b.param("x", (20,)), b.param("out", (8,), role="out")
    one, total = b.held("one", (1,)), b.held("total", (1,))
    t = b.block.coordinate("t", "threads")
    i = LoopVar("i", 0, 19)
    body = (
        copy(window(whole(x), (i.expr(),), (1,)), one),
        op("binary", (total, one), total, kind="add"),
    )
    func = b.func(
        op("fill", (Scalar(0.0, F32),), total),
        For(i, t, 20, 8, body),
        copy(total, window(whole(out), (t,), (1,))),
    )
    given = torch.arange(20.0)
    want = torch.tensor([24.0, 27, 30, 33, 16, 18, 20, 22])
    assert torch.equal(result(func, given), want)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_counters_tests_and_trip_counts(trips):
    """The counter grows by 2 a turn; only turns with an even variable are taken."""
    b = Block(32)
    out = b.param("out", (32,), I32, "out")
    total, step = b.per_thread("total", 32, I32), b.per_thread("step", 32, I32)
    n = Counter("n")
    i = LoopVar("i", 0, 4)
    even = 1 - i.expr() % 2
    body = (
        When(even, (
            op("fill", (Scalar(n.expr(), I32),), step),
            op("binary", (total, step), total, kind="add"),
        )),
        Advance(n, 2),
    )  # fmt: skip
    func = b.func(op("fill", (Scalar(0, I32),), total), For(i, 0, trips, 1, body), copy(total, out))
    want = sum(2 * i for i in range(0, trips, 2))
    assert torch.equal(result(func), torch.full((32,), want, dtype=torch.int32))


def test_arange_starts_where_it_is_told():
    b = Block(32, ctas=2)
    out = b.param("out", (64,), I32, "out")
    r = b.per_thread("r", 32, I32)
    block = b.grid.coordinate("block", "grid")
    made = Issue("arange", (), (whole(r),), {"start": block * 100, "step": 2})
    func = b.func(made, copy(whole(r), window(whole(out), (block * 32,), (32,))))
    want = torch.cat([torch.arange(0, 64, 2), torch.arange(100, 164, 2)]).int()
    assert torch.equal(result(func), want)


SCOPES = {"warp": (4, 1), "cta": (64, 1), "grid": (64, 4)}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scope", SCOPES)
def test_reductions_over_units(scope, policy):
    """x of each group of units is summed and every unit of it holds the sum."""
    lanes, ctas = SCOPES[scope]
    b = Block(64, ctas={"warp": 1, "cta": 2}.get(scope, 2), clusters=2)
    total = 64 * b.topologies[1].size * 2
    x, out = b.param("x", (total,), I32), b.param("out", (total,), I32, "out")
    cluster, block = b.grid.coordinate("cluster", "g"), b.grid.coordinate("block", "g")
    at = (cluster * b.topologies[1].size + block) * 64

    def body(mesh):
        group, member = mesh.at("thread")
        over = {
            "warp": (member,), "cta": (group, member),
            "grid": (mesh.find("cluster"), mesh.find("block"), group, member),
        }[scope]  # fmt: skip
        part = b.held("part", (1,), (1,), (None,), mesh, I32, tuple((a, "sum") for a in over))
        sum_ = b.held("sum", (1,), mesh=mesh, dtype=I32)
        here = mesh.coordinate(group.name) * member.extent + mesh.coordinate(member.name)
        yield copy(window(whole(x), (at + here,), (1,)), part)
        yield op("reduce", (part,), sum_, op="combine", kind="sum", scope=scope, over=over)
        yield copy(sum_, window(whole(out), (at + here,), (1,)))

    func = b.func(b.arranged((64 // lanes, lanes), ("group", "member"), body))
    given = torch.randint(0, 1000, (total,), dtype=torch.int32)
    size = lanes * ctas
    want = given.reshape(-1, size).sum(1, keepdim=True).expand(-1, size).reshape(-1).int()
    assert torch.equal(result(func, given, policy=policy), want)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("meets", [(True, True), (False, True), (True, False)])
def test_a_sum_through_the_shared_memories_of_a_cluster(policy, meets):
    """Every CTA of a cluster lays its numbers into its own memory and adds up those of all,
    between two barriers of the cluster: without the first it may read too early, without the
    second a CTA may have ended."""
    b = Block(64, ctas=4, clusters=2)
    x, out = b.param("x", (512,), I32), b.param("out", (512,), I32, "out")
    at = (b.grid.coordinate("cluster", "g") * 4 + b.grid.coordinate("block", "g")) * 64
    mine, sum_ = b.per_thread("mine", 64, I32), b.per_thread("sum", 64, I32)
    shared = b.shared("shared", (64,), I32)
    over = (b.grid.find("block"),)
    barriers = [[sync("cluster")] if there else [] for there in meets]
    func = b.func(
        copy(window(whole(x), (at,), (64,)), mine), copy(whole(mine), shared), *barriers[0],
        op("reduce", (shared,), sum_, op="combine", kind="sum", scope="cluster", over=over),
        *barriers[1], copy(sum_, window(whole(out), (at,), (64,))),
    )  # fmt: skip
    given = torch.randint(0, 1000, (512,), dtype=torch.int32)
    if all(meets):
        want = given.reshape(2, 4, 64).sum(1, keepdim=True).expand(2, 4, 64).reshape(-1).int()
        assert torch.equal(result(func, given, policy=policy), want)
    else:
        kinds = {r.kind for r in run(func, [given], policy=policy).reports}
        assert kinds & ({"race", "uninitialised"} if not meets[0] else {"not-drained"})


def test_a_row_sum_over_what_lanes_hold_and_over_lanes():
    """(8, 16) by 8 x 4 lanes: each holds 4 of a row; all four end with the row's mean."""
    b = Block(32)
    x, out = b.param("x", (8, 16)), b.param("out", (8,), role="out")

    def body(mesh):
        row, lane = mesh.at("thread")
        r = b.held("r", (8, 16), (8, (4, 4)), (row, None, lane), mesh)
        mean = b.held("mean", (8,), (8,), (row,), mesh)
        yield copy(x, r)
        yield op("reduce", (r,), mean, axes=(1,), keepdim=False, kind="mean", scope="warp",
                 over=(lane,))  # fmt: skip
        yield copy(mean, out)

    func = b.func(b.arranged((8, 4), ("row", "lane"), body))
    given = torch.randint(0, 64, (8, 16)).float()
    assert torch.equal(result(func, given), given.mean(1))


def test_a_collective_that_not_all_reach_hangs():
    b = Block(64)
    out = b.param("out", (64,), I32, "out")
    r = b.per_thread("r", 64, I32)
    t = b.block.coordinate("t", "threads")
    both = op("reduce", (r,), r, op="combine", kind="sum", scope="cta", over=b.block.axes)
    func = b.func(op("fill", (Scalar(1, I32),), r), When(32 - t, (both,)), copy(r, out))
    assert "deadlock" in kinds(run(func, []))


def test_registers_are_read_where_they_are_held():
    b = Block(32)
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    r, s = b.per_thread("r", 32), b.per_thread("s", 32)
    (v,) = fresh_vars((32,))
    turned = View(r, (32,), (v,), (31 - v.expr(),))
    found = run(b.func(copy(x, r), copy(turned, s), copy(s, out)), [torch.zeros(32)])
    assert found.reports[0].kind == "not-held"
    assert "r [31] is not held by threads 0..31 of CTA 0" in found.reports[0].says


def test_poison_is_not_a_value():
    b = Block(32)
    out = b.param("out", (32,), role="out")
    r = b.per_thread("r", 32)
    found = run(b.func(Issue("fill", (), (whole(r),)), copy(r, out)), [])
    assert kinds(found) == {"uninitialised"}
    some = window(whole(out), (0,), (16,))
    one = b.held("one", (16,))
    func = b.func(op("fill", (Scalar(1.0, F32),), one), b.scope(0, 1, copy(whole(one), some)))
    found = run(func, [])
    assert [r.kind for r in found.reports] == ["uninitialised"]
    assert "16 elements of out are never written" in found.reports[0].says


def test_mma_sync_from_fragments():
    """PTX ISA, m16n8k16: rows and columns that each lane's registers hold."""
    from tilefoundry.dsl import T

    b = Block(32)
    x, y = b.param("x", (16, 16), BF16), b.param("y", (16, 8), BF16)
    out = b.param("out", (16, 8), role="out")
    own = Mesh(arrange("thread", (4, 8), ("member", "group"), (1, 4)), b.block.sizes)
    mesh = enter(b.mesh, own, LEVELS)
    member, group = mesh.at("thread")
    a = b.held("a", (16, 16), ((2, 8), (2, 4, 2)), (None, group, None, member, None), mesh, BF16)
    w = b.held("w", (16, 8), ((2, 4, 2), 8), (None, member, None, group), mesh, BF16)
    acc = b.held("acc", (16, 8), ((2, 8), (4, 2)), (None, group, member, None), mesh)
    mma = Issue(
        "tiled_mma", (whole(acc), whole(a), whole(w)), (whole(acc),),
        {"atom": T.cuda.sm80.Mma(dtype="bf16"), "repeat": (1, 1, 1)},
    )  # fmt: skip
    body = (copy(x, a), copy(y, w), op("fill", (Scalar(1.0, F32),), acc), mma, copy(acc, out))
    func = b.func(b.arranged((4, 8), ("member", "group"), lambda m: body,
                                                 strides=(1, 4)))  # fmt: skip
    p, q = torch.randint(-4, 4, (16, 16)).bfloat16(), torch.randint(-4, 4, (16, 8)).bfloat16()
    assert torch.equal(result(func, p, q), p.float() @ q.float() + 1)
