"""Each rule of synchronisation: a program that keeps it and one that does not.

Traps are the classes of defect that kernels and checkers of this field have shipped.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rules import Kernel, copy, loop, pipe, sync

from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.tir.program import (
    Advance,
    Buffer,
    Counter,
    Issue,
    Scalar,
    When,
    walk,
    whole,
    window,
)
from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from faults import swap
from samples import gemm


def codes(func):
    return {f.code for f in verify(func)}


def test_what_is_read_was_written():
    k = Kernel(128)
    tile, one = k.smem("tile", (64, 64)), k.rmem("one", (64, 64))
    assert codes(k.func(copy(tile, one))) == {"read-unwritten"}
    src = k.gmem("src", (64, 64))
    fill = loop("i", 0, lambda i: (copy(src, tile),))
    assert codes(k.func(fill, BAR, copy(tile, one))) == {"read-unwritten"}
    fill = loop("i", 1, lambda i: (copy(src, tile),))
    assert codes(k.func(fill, BAR, copy(tile, one))) == set()


# ---- plain accesses through shared memory


def exchange(*between, back="across", split=False):
    """128 threads write a tile from registers and read it in another arrangement; ``split``:
    one thread has had something of its own to do before."""
    k = Kernel(128)
    if split:
        k.barrier("unused", 1)
    one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
    two = k.rmem("two", (64, 64), back)
    before = k.setup() if split else ()
    return k.func(*before, copy(one, tile), *between, copy(tile, two))


BAR = sync("barrier", id=1, threads=128)


@pytest.mark.parametrize(
    ("between", "back", "wrong"),
    [
        ((BAR,), "across", set()),
        ((), "across", {"sync-race"}),
        ((sync("warp"),), "across", {"sync-race"}),  # a warp does not order its neighbours
        ((), "rows", set()),  # every thread reads what it wrote
    ],
)
@pytest.mark.parametrize("split", [False, True])
def test_other_threads_read_after_a_barrier(between, back, wrong, split):
    assert codes(exchange(*between, back=back, split=split)) == wrong


@pytest.mark.parametrize("warp", [True, False])
def test_lanes_exchange_after_a_warp_barrier(warp):
    # rows belong to warps in both arrangements; inside a warp the lanes differ
    k = Kernel(128)
    lane, w = k.axes["lane"], k.axes["warp"]
    one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
    layout = ShardLayout(((4, 16), (2, 32)), axes=(w, None, None, lane))
    two = Buffer("two", (64, 64), BF16, "rmem", layout, mesh=k.inside)
    k.buffers.append(two)
    between = (sync("warp"),) if warp else ()
    assert codes(k.func(copy(one, tile), *between, copy(tile, two))) == (
        set() if warp else {"sync-race"}
    )


def test_a_tile_is_rewritten_only_after_it_was_read():
    # trap 1: one buffer, no ordering of the back edge
    def program(*back):
        k = Kernel(128)
        one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
        two = k.rmem("two", (64, 64), "across")
        return k.func(loop("i", 5, lambda i: (copy(one, tile), BAR, copy(tile, two), *back)))

    assert codes(program()) == {"sync-race"}
    assert codes(program(BAR)) == set()


@pytest.mark.parametrize(
    ("barrier", "wrong"),
    [
        (sync("barrier", id=1, threads=96), {"sync-barrier"}),
        (sync("barrier", id=1, threads=160), {"sync-deadlock"}),
        (sync("barrier", id=1, threads=120), {"sync-barrier"}),
        (sync("barrier", id=16, threads=128), {"sync-barrier"}),
    ],
)
def test_named_barriers_count_whole_warps_and_exactly_those_that_come(barrier, wrong):
    # trap 4
    assert wrong <= codes(exchange(barrier))


def test_a_barrier_that_leaves_a_warp_out():
    k = Kernel(128)
    one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
    two = k.rmem("two", (64, 64), "across")
    some = k.on(0, 3, sync("barrier", id=1, threads=96))
    # the last warp's elements may be read before it writes them
    wrong = {"sync-race", "read-unwritten"}
    assert codes(k.func(copy(one, tile), some, copy(tile, two))) == wrong
    lanes = k.lanes(16, sync("barrier", id=1, threads=128))
    assert "sync-participants" in codes(k.func(copy(one, tile), lanes, copy(tile, two)))


# ---- a ring filled by an asynchronous engine


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 4, 5, 9, 1000])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_ring_works_for_every_trip_count(slots, trips):
    assert verify(pipe(slots, trips)) == ()


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"wait": False}, "sync-race"),
        ({"release": False}, "sync-race"),
        ({"fence": False}, "sync-proxy"),  # trap 9
        ({"warp": False}, "sync-race"),  # one lane releases for all
        ({"parity": lambda i: (i // 2 + 1) % 2}, "sync-barrier"),
        ({"parity": lambda i: i % 2}, "sync-barrier"),  # trap 3: the index is not the phase
        ({"ahead": 1}, "sync-deadlock"),
    ],
)
def test_a_ring_with_one_defect(change, wrong):
    assert wrong in codes(pipe(2, 6, **change))
    assert wrong in codes(pipe(2, 1000, **change))


def test_a_parity_from_the_loop_index_where_steps_are_skipped():
    # trap 3: every third step does nothing, and the barrier advances on its own
    skip = {"guard": lambda i, stmts: (When(i % 3, stmts),)}
    assert codes(pipe(1, 12, **skip))
    assert codes(pipe(1, 12)) == set()


def test_a_running_count_of_its_own_for_skipped_steps():
    k = Kernel(128)
    src, ring = k.gmem("src", (32, 32 * 12)), k.smem("ring", (32, 32), 2)
    full, empty = k.barrier("full", 1, 2), k.barrier("empty", 3, 2)
    held = Buffer("held", (32, 32), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    n = Counter("n")
    at, turn = n.expr() % 2, n.expr() // 2

    def produce(i):
        load = copy(window(whole(src), (0, 32 * i), (32, 32)), whole(ring, at),
                    "copy_async_tensor", barrier=full, slot=at)  # fmt: skip
        acquire = sync("wait", barrier=empty, slot=at, parity=(turn + 1) % 2)
        expect = sync("expect", barrier=full, slot=at, bytes=2048)
        return (When(i % 3, (acquire, expect, load, Advance(n))),)

    def consume(i):
        wait = sync("wait", barrier=full, slot=at, parity=turn % 2)
        free = sync("arrive", barrier=empty, slot=at, every=32)
        body = (wait, copy(whole(ring, at), held), sync("fence_proxy"), sync("warp"), free)
        return (When(i % 3, (*body, Advance(n))),)

    def program(trips):
        return k.func(*k.setup(), k.lanes(1, loop("i", trips, produce)),
                      k.on(1, 4, loop("j", trips, consume)))  # fmt: skip

    for trips in (0, 1, 2, 3, 11, 12):
        assert verify(program(trips)) == ()


def test_two_producers_of_one_tile():
    # trap 5: half of the tile is stored plainly, and only the copy's barrier is waited on
    def program(*tell, count=1):
        k = Kernel(128)
        src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
        some = Buffer("some", (32, 64), BF16, "rmem", mesh=k.inside)
        held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
        k.buffers += [some, held]
        full = k.barrier("full", count)
        top = window(whole(tile), (0, 0), (32, 64))
        load = copy(window(whole(src), (0, 0), (32, 64)), top, "copy_async_tensor",
                    barrier=full, slot=0)  # fmt: skip
        store = copy(whole(some), window(whole(tile), (32, 0), (32, 64)))
        tell = tuple(sync("arrive", barrier=full, every=32) if t == "arrive" else sync(t)
                     for t in tell)  # fmt: skip
        return k.func(
            *k.setup(),
            k.lanes(1, sync("expect", barrier=full, bytes=32 * 64 * 2), load),
            k.on(1, 2, store, *tell),
            k.on(2, 4, sync("wait", barrier=full), copy(tile, held)),
        )

    assert codes(program()) == {"sync-race"}
    assert codes(program("warp", "arrive", count=2)) == set()


def test_two_copies_that_expect_bytes_apart_are_one_phase():
    k = Kernel(64)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    full = k.barrier("full", 2)
    halves = [
        stmt
        for row in (0, 32)
        for stmt in (
            sync("expect", barrier=full, bytes=32 * 64 * 2),
            copy(window(whole(src), (row, 0), (32, 64)), window(whole(tile), (row, 0), (32, 64)),
                 "copy_async_tensor", barrier=full, slot=0),
        )
    ]  # fmt: skip
    reader = k.on(1, 2, sync("wait", barrier=full), copy(tile, held))
    assert verify(k.func(*k.setup(), k.lanes(1, *halves), reader)) == ()


@pytest.mark.parametrize("left_out", ["init", "fence_init", "barrier", "none"])
def test_initialisation_is_visible_before_use(left_out):
    # traps 6 and 11
    func = pipe(2, 3)
    for stmt, _ in list(walk(func.body)):
        if getattr(stmt, "kind", "") == left_out and getattr(stmt, "id", 0) == 0:
            func = swap(func, stmt)
            break
    assert codes(func) == (set() if left_out == "none" else {"sync-barrier"})


@pytest.mark.parametrize("lanes", [1, 32, 128])
@pytest.mark.parametrize("met", [True, False])
def test_the_thread_that_initialises_may_use_a_barrier_before_the_others(lanes, met):
    k = Kernel(128)
    src, tile = k.gmem("src", (32, 64)), k.smem("tile", (32, 64))
    full = k.barrier("full", 1)
    start = k.setup()
    load = copy(src, tile, "copy_async_tensor", barrier=full, slot=0)
    wait = sync("wait", barrier=full)
    waits = k.on(0, 4, wait) if lanes == 128 else k.lanes(lanes, wait)
    body = (k.lanes(1, sync("expect", barrier=full, bytes=4096), load), waits)
    found = codes(k.func(*start, *body) if met else k.func(start[0], *body))
    assert found == (set() if met or lanes == 1 else {"sync-barrier"})


def test_a_fence_on_a_path_of_zero_trips():
    # trap 9: the only fence stands in a loop that may not run
    def program(trips):
        k = Kernel(128)
        out = k.gmem("out", (64, 64), "out")
        one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))
        store = k.lanes(32, copy(tile, out, "copy_async_tensor"), sync("bulk_commit"),
                        sync("bulk_wait"))  # fmt: skip
        return k.func(
            copy(one, tile), loop("i", trips, lambda i: (sync("fence_proxy"),)), BAR, store
        )

    assert codes(program(1)) == set()
    assert codes(program(0)) == {"sync-proxy"}


# ---- cp.async


def gathered(*after, instr="copy_async", trips=1):
    k = Kernel(128)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    two = k.rmem("two", (64, 64))
    return k.func(copy(src, tile, instr), *after, copy(tile, two))


@pytest.mark.parametrize(
    ("after", "wrong"),
    [
        ((sync("async_commit"), sync("async_wait"), BAR), set()),
        ((sync("async_commit"), BAR), {"sync-race", "sync-drain"}),
        ((sync("async_wait"), BAR), {"sync-race", "sync-drain"}),
        ((sync("async_commit"), sync("async_wait", pending=1), BAR), {"sync-race", "sync-drain"}),
        ((sync("async_commit"), sync("async_wait")), {"sync-race"}),
    ],
)
def test_copies_of_a_group_are_waited_for_and_handed_over(after, wrong):
    assert codes(gathered(*after)) == wrong


def test_an_arrival_of_cp_async_hands_over():
    k = Kernel(128)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    full = k.barrier("full", 64)
    writer = k.on(0, 2, copy(src, tile, "copy_async"), sync("async_arrive", barrier=full))
    reader = k.on(2, 4, sync("wait", barrier=full), copy(tile, held))
    assert verify(k.func(*k.setup(), writer, reader)) == ()
    plain = k.on(0, 2, copy(src, tile), sync("async_arrive", barrier=full))
    assert codes(k.func(*k.setup(), plain, reader)) == {"sync-race"}


@pytest.mark.parametrize("fence", [True, False])
def test_gathered_operands_of_wgmma_are_fenced(fence):
    # trap 9: cp.async writes in the generic proxy, wgmma reads in the asynchronous one
    func = wgmma_on_copies((sync("fence_proxy"),) if fence else ())
    assert codes(func) == (set() if fence else {"sync-proxy"})


def wgmma_on_copies(fence):
    """One warpgroup gathers both operands itself, then multiplies."""
    full = gemm(tiles=(1, 1), k_steps=1, ctas=1, groups=1, stages=1)
    a, b, out = full.params
    lhs, rhs, _, acc, _ = full.buffers
    multiply = next(s for s, _ in walk(full.body) if getattr(s, "instr", "") == "tiled_mma")
    zero = lambda v: replace(v, slot=0)  # noqa: E731
    multiply = replace(multiply, reads=tuple(map(zero, multiply.reads)),
                       writes=tuple(map(zero, multiply.writes)))  # fmt: skip
    place = next(s for s, _ in walk(full.body) if getattr(s, "binding", "") == "compute")
    body = (
        Issue("fill", (Scalar(0.0, F32),), (whole(acc),)),
        copy(a, lhs, "copy_async"), copy(b, rhs, "copy_async"), sync("async_commit"),
        sync("async_wait"), *fence, sync("barrier", id=1, threads=128), sync("wgmma_fence"),
        multiply, sync("wgmma_commit"), sync("wgmma_wait"), copy(acc, out),
    )  # fmt: skip
    outer = full.body[0]
    inner = replace(outer.body[0], body=(replace(place, body=body),))
    return replace(
        full, buffers=(lhs, rhs, acc), barriers=(), body=(replace(outer, body=(inner,)),)
    )


# ---- other ways to hand over


@pytest.mark.parametrize("named", [True, False])
def test_bar_arrive_hands_over_to_bar_sync(named):
    k = Kernel(128)
    src, tile = k.gmem("src", (64, 64)), k.smem("tile", (64, 64))
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    give = (sync("barrier_arrive", id=1, threads=128),) if named else ()
    take = (sync("barrier", id=1, threads=128),) if named else ()
    func = k.func(k.on(0, 2, copy(src, tile), *give), k.on(2, 4, *take, copy(tile, held)))
    assert codes(func) == (set() if named else {"sync-race"})


@pytest.mark.parametrize("tell", ["barrier", "warp", "none"])
def test_one_warp_waits_and_tells_the_others(tell):
    k = Kernel(128)
    src, tile = k.gmem("src", (32, 64)), k.smem("tile", (32, 64))
    held = Buffer("held", (32, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    full = k.barrier("full", 1)
    load = (sync("expect", barrier=full, bytes=4096),
            copy(src, tile, "copy_async_tensor", barrier=full, slot=0))  # fmt: skip
    wait = sync("wait", barrier=full)
    told = {"barrier": (BAR,), "warp": (sync("warp"),), "none": ()}[tell]
    by_warp = k.func(*k.setup(), k.lanes(1, *load), k.on(0, 1, wait), *told, copy(tile, held))
    late = {"read-unwritten"}  # what races may also be read before it is there
    assert codes(by_warp) - late == (set() if tell == "barrier" else {"sync-race"})
    # one lane waits, its warp meets
    by_lane = k.func(*k.setup(), k.lanes(1, *load, wait), k.on(0, 1, *told[:tell == "warp"],
                                                               copy(tile, held)))  # fmt: skip
    assert codes(by_lane) - late == (set() if tell == "warp" else {"sync-race"})


@pytest.mark.parametrize(
    ("wait", "tell", "wrong"),
    [
        (True, True, set()),
        (False, True, {"sync-race"}),
        (True, False, {"sync-race"}),
    ],
)
def test_the_source_of_a_store_is_rewritten_once_it_was_read(wait, tell, wrong):
    k = Kernel(128)
    out = k.gmem("out", (256, 64), "out")
    one, tile = k.rmem("one", (64, 64)), k.smem("tile", (64, 64))

    def body(i):
        store = copy(whole(tile), window(whole(out), (64 * i, 0), (64, 64)), "copy_async_tensor")
        read = (sync("bulk_wait", read=True),) if wait else ()
        return (
            copy(one, tile), sync("fence_proxy"), BAR,
            k.lanes(32, store, sync("bulk_commit"), *read), *((BAR,) if tell else ()),
        )  # fmt: skip

    func = k.func(loop("i", 4, body), k.lanes(32, sync("bulk_wait")))
    assert codes(func) == wrong


# ---- the memory plan


def test_buffers_that_share_bytes_one_after_the_other():
    def program(second_read):
        k = Kernel(128)
        one, two = k.rmem("one", (64, 64)), k.rmem("two", (64, 64), "across")
        a = k.smem("a", (64, 64))
        b = k.smem("b", (64, 64), offsets=a.offsets)
        again = (copy(a, two),) if second_read else ()
        return k.func(copy(one, a), BAR, copy(a, two), BAR, copy(one, b), BAR, copy(b, two), *again)

    assert codes(program(False)) == set()
    assert codes(program(True)) == {"smem-plan"}  # a was overwritten through b


def test_barriers_have_bytes_of_their_own():
    # trap 12
    k = Kernel(128)
    k.barrier("full", 1)
    k.smem("tile", (64, 64), offsets=(0,))
    assert codes(k.func()) == {"smem-plan"}
    k = Kernel(128)
    k.smem("tile", (64, 64))
    k.barrier("full", 1)
    func = k.func()
    assert codes(func) == set()
    assert codes(replace(func, shared_bytes=func.shared_bytes - 1)) == {"smem-plan"}


# ---- device memory


def stored(ctas, at, shape=(64, 64), extent=(128, 64), *, grid=(), tail=()):
    k = Kernel(128, ctas)
    one, out = k.rmem("one", shape), k.gmem("out", extent, "out")
    c = k.grid.coordinate("c", "cta")
    return k.func(copy(whole(one), window(whole(out), at(c), shape)), *grid, *tail)


@pytest.mark.parametrize(
    ("ctas", "at", "wrong"),
    [
        (2, lambda c: (64 * c, 0), set()),
        (2, lambda c: (0, 0), {"device-overlap", "device-unwritten"}),
        (2, lambda c: (32 * c, 0), {"device-overlap"}),
        (3, lambda c: (64 * c, 0), {"view-bounds"}),
        (3, lambda c: (64 * (c % 2), 0), {"device-overlap"}),
        (1, lambda c: (64 * c, 0), {"device-unwritten"}),
        (2, lambda c: (64 * ((c + 1) % 2), 0), set()),
    ],
)
def test_blocks_write_apart_and_everything(ctas, at, wrong):
    assert wrong <= codes(stored(ctas, at)) and (wrong or not codes(stored(ctas, at)))


@pytest.mark.parametrize("met", [True, False])
def test_a_grid_barrier_lets_blocks_read_what_others_wrote(met):
    k = Kernel(128, 2)
    one, work = k.rmem("one", (64, 64)), k.gmem("work", (128, 64), "work")
    two = k.rmem("two", (64, 64))
    c = k.grid.coordinate("c", "cta")
    mine, other = ((64 * c, 0)), ((64 * (1 - c), 0))
    body = (copy(whole(one), window(whole(work), mine, (64, 64))),
            *((sync("grid"),) if met else ()),
            copy(window(whole(work), other, (64, 64)), whole(two)))  # fmt: skip
    assert codes(k.func(*body)) == (set() if met else {"device-overlap"})


# ---- registers


@pytest.mark.parametrize(
    ("counts", "wrong"),
    [
        ((24, 240), set()),
        ((40, 232), set()),
        ((40, 240), {"register-plan"}),  # 40 + 2 · 240 = 520 > 3 · 168
        ((28, 232), {"register-plan"}),
        ((16, 232), {"register-plan"}),
        ((24, 264), {"register-plan"}),
    ],
)
def test_registers_of_the_roles(counts, wrong):
    k = Kernel(384)
    low, high = counts
    body = (k.on(0, 4, sync("registers", count=low)), k.on(4, 12, sync("registers", count=high)))
    assert codes(k.func(*body)) == wrong


def test_registers_are_set_by_whole_warpgroups():
    k = Kernel(384)
    assert codes(k.func(k.on(0, 2, sync("registers", count=24)))) == {"sync-participants"}


def test_a_finding_names_both_sides():
    found = verify(pipe(2, 6, fence=False))[0]
    assert "copy_async_tensor" in str(found.second)
    assert "ring" in str(found) and "threads 32..127" in str(found) and "fence" in found.fix


def test_a_value_in_registers_does_not_cross_roles():
    # trap 10
    k = Kernel(128)
    src, out = k.gmem("src", (64, 64)), k.gmem("out", (64, 64), "out")
    held = Buffer("held", (64, 64), BF16, "rmem", mesh=k.inside)
    k.buffers.append(held)
    give, take = k.on(0, 1, copy(src, held)), k.on(1, 2, copy(held, out))
    assert codes(k.func(give, take)) == {"sync-registers", "read-unwritten"}
    assert codes(k.func(k.on(0, 1, copy(src, held), copy(held, out)))) == set()
