"""A GEMM in TIR built by hand: one producer warp, ``groups`` consumer warpgroups, a storer.

The lowering does not take part: these are the programs that the printer, the verifier and
the interpreter are first tested on.
"""

from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, narrow, rearrange
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.layout import Swizzle
from tilefoundry.targets.load import load_target
from tilefoundry.tir.program import (
    Barrier,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Scalar,
    Sync,
    When,
    With,
    whole,
    window,
)

LEVELS = ("gpu", "cluster", "cta", "thread")


def wgmma(n):
    from tilefoundry.dsl import T

    return T.cuda.sm90.Wgmma(n=n, dtype="bf16", form=T.cuda.sm90.Form.SS,
                             a_major=T.cuda.sm90.Major.K, b_major=T.cuda.sm90.Major.MN)  # fmt: skip


def gemm(tiles=(4, 2), k_steps=4, ctas=2, groups=2, stages=3, synced=True, storer="loader"):
    """C = A · B with tiles of (64 · groups, 256), 64 deep; a persistent loop over tiles.

    ``storer``: ``loader`` (the producer's warp) or ``own`` (another warp of its warpgroup).
    """
    bm, bn, bk = 64 * groups, 256, 64
    m, n, k = tiles[0] * bm, tiles[1] * bn, k_steps * bk
    tasks = tiles[0] * tiles[1]
    threads = 128 * (groups + 1)
    sizes = (("cta", ctas), ("thread", threads))
    grid = Mesh(arrange("cta", (ctas,), ("persistent",)), sizes)
    block = Mesh(arrange("thread", (groups + 1, 128), ("warpgroup", "participant")), sizes)
    inside = enter(grid, block, LEVELS)

    def scope(own, binding, source, *body):
        return With(own, enter(inside, own, LEVELS), binding, body, source)

    load_own = narrow(block, (0, slice(0, 32)))
    store_own = load_own if storer == "loader" else narrow(block, (0, slice(32, 64)))
    compute_own = rearrange(
        narrow(block, (slice(1, groups + 1), slice(None))),
        (groups, 4, 8, 4),
        ("group", "warp", "lane8", "lane4"),
    )
    compute = enter(inside, compute_own, LEVELS)
    axes = {a.name: a for a in compute.at("thread")}
    acc_layout = ShardLayout(
        (groups, 4, 2, 8, 32, 4, 2),
        (16384, 16, 8, 1, 512, 128, 64),
        (axes["group"], axes["warp"], None, axes["lane8"], None, axes["lane4"], None),
    )
    swizzle = Swizzle(3, 4, 3)
    a_layout = ShardLayout(
        ((groups, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1)), (None,) * 5, (), swizzle
    )
    b_layout = ShardLayout(
        ((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1)), (None,) * 5, (), swizzle
    )
    c_layout = ShardLayout((bm, (4, 64)), (64, (64 * bm, 1)), (None,) * 3, (), swizzle)

    a = Buffer("a", (m, k), BF16, "gmem", role="in")
    b = Buffer("b", (k, n), BF16, "gmem", role="in")
    out = Buffer("out", (m, n), BF16, "gmem", role="out")
    a_bytes, b_bytes = bm * bk * 2, bk * bn * 2
    b_at = tuple(i * b_bytes for i in range(stages))
    a_at = tuple(stages * b_bytes + i * a_bytes for i in range(stages))
    c_at = stages * (a_bytes + b_bytes)
    lhs = Buffer(
        "lhs_ring", (bm, bk), BF16, "smem", a_layout, slots=stages, offsets=a_at, align=1024
    )
    rhs = Buffer(
        "rhs_ring", (bk, bn), BF16, "smem", b_layout, slots=stages, offsets=b_at, align=1024
    )
    staged = Buffer("staged", (bm, bn), BF16, "smem", c_layout, offsets=(c_at,), align=1024)
    acc = Buffer("acc", (bm, bn), F32, "rmem", acc_layout, mesh=compute)
    tile = Buffer("tile_out", (bm, bn), BF16, "rmem", acc_layout, mesh=compute)
    bars = c_at + bm * bn * 2
    full = Barrier("full", stages, 1, bars)
    empty = Barrier("empty", stages, groups, bars + 8 * stages)
    ready = Barrier("staged_full", 1, 4 * groups, bars + 16 * stages)
    free = Barrier("staged_empty", 1, 1, bars + 16 * stages + 8)

    p = grid.coordinate("persistent", "cta")
    task = LoopVar("task", 0, tasks - 1)
    step = LoopVar("k", 0, k - bk, bk)
    t, kk = task.expr(), step.expr()
    row, col = t // tiles[1] * bm, t % tiles[1] * bn
    turn = (t - p) // ctas
    count = turn * k_steps + kk // bk
    slot, parity = count % stages, count // stages % 2
    # a lone slot is released at once; of no steps there is nothing to release
    flying = int(stages > 1 and k_steps > 0)

    def sync(kind, **fields):
        return (Sync(kind, **fields),) if synced else ()

    def load(src, dst, at, shape):
        attrs = {"barrier": full, "slot": slot} if synced else {}
        return Issue(
            "copy_async_tensor", (window(whole(src), at, shape),), (whole(dst, slot),), attrs
        )

    zero = (Issue("fill", (Scalar(0.0, F32),), (whole(acc),)),)
    mma = Issue(
        "tiled_mma",
        (whole(acc), whole(lhs, slot), whole(rhs, slot)),
        (whole(acc),),
        {"atom": wgmma(bn), "repeat": (groups, 1, 4), "serial": (1, 1, 4), "order": (0, 1, 2)},
    )
    consume = (
        *sync("wait", barrier=full, slot=slot, parity=parity, why="lhs_ring, rhs_ring filled"),
        *sync("wgmma_fence"),
        mma,
        *sync("wgmma_commit"),
        *sync("wgmma_wait", pending=flying),
    )
    if synced:
        release = Sync("arrive", barrier=empty, slot=(count - flying) % stages, every=128)
        consume += (When(kk, (release,)) if flying else release,)
    last = turn * k_steps + k_steps - 1
    finish = (
        *sync("wgmma_wait", pending=0),
        *(sync("arrive", barrier=empty, slot=last % stages, every=128) if flying else ()),
        Issue("cast", (whole(acc),), (whole(tile),)),
        *sync("wait", barrier=free, parity=(turn + 1) % 2),
        Issue("copy", (whole(tile),), (whole(staged),)),
        *sync("fence_proxy"),
        *sync("warp"),
        *sync("arrive", barrier=ready, every=32),
    )
    store = (
        *sync("wait", barrier=ready, parity=turn % 2),
        Issue("copy_async_tensor", (whole(staged),), (window(whole(out), (row, col), (bm, bn)),)),
        *sync("bulk_commit"),
        *sync("bulk_wait", pending=0, read=True),
        *sync("arrive", barrier=free, every=32),
    )
    arranged = f"threads[1:{groups + 1}, :]"
    loads = (
        *sync("wait", barrier=empty, slot=slot, parity=(count // stages + 1) % 2),
        *sync("expect", barrier=full, slot=slot, bytes=a_bytes + b_bytes),
        load(a, lhs, (row, kk), (bm, bk)),
        load(b, rhs, (kk, col), (bk, bn)),
    )
    steps = For(step, 0, k, bk, (
        scope(load_own, "loader", "threads[0, :32]", *loads),
        scope(compute_own, "compute", arranged, *consume),
    ))  # fmt: skip
    store_source = "threads[0, :32]" if storer == "loader" else "threads[0, 32:64]"
    loop = For(task, p, tasks, ctas, (
        scope(compute_own, "compute", arranged, *zero),
        steps,
        scope(compute_own, "compute", arranged, *finish),
        scope(store_own, "storer", store_source, *store),
    ))  # fmt: skip
    first = narrow(block, (0, slice(0, 1)))
    setup = ()
    if synced:
        setup = (
            scope(first, "setup", "threads[0, :1]",
                  *(Sync("init", barrier=x, count=x.count) for x in (full, empty, ready, free)),
                  Sync("fence_init")),
            Sync("barrier", id=0, threads=threads),
        )  # fmt: skip
    end = (
        (scope(store_own, "storer", store_source, *sync("bulk_wait", pending=0)),) if synced else ()
    )
    body = With(block, inside, "threads", (*setup, loop, *end))
    barriers = (full, empty, ready, free) if synced else ()
    return PrimFunc(
        "gemm",
        (a, b, out),
        (lhs, rhs, staged, acc, tile),
        barriers,
        (With(grid, grid, "cta", (body,)),),
        load_target("nvidia.h200_sxm"),
        (Topology("cta", ctas), Topology("thread", threads)),
        shared_bytes=bars + (16 * stages + 16 if synced else 0),
    )
