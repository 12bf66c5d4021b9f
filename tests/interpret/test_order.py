"""What orders accesses and what does not, on small kernels (PTX ISA, memory consistency
model; asynchronous copies; barrier, mbarrier)."""

import pytest
import torch
from kernels import Block, copy, kinds, sync

from tilefoundry.interpret import POLICIES, run
from tilefoundry.ir.dtype import F32
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.mesh import Coord, arrange
from tilefoundry.tir.program import (
    Barrier,
    For,
    Issue,
    Scalar,
    View,
    When,
    fresh_vars,
    whole,
    window,
)


def shift(buffer, by, size):
    """Element v of the view is element (v + by) mod size."""
    (v,) = fresh_vars((size,))
    return View(buffer, (size,), (v,), ((v.expr() + by) % size,))


def exchange(threads, by, *between, lanes=None):
    """Each thread stores one element to shared memory and loads that of thread t + by."""
    b = Block(threads)
    x, out = b.param("x", (threads,)), b.param("out", (threads,), role="out")
    r, s = b.per_thread("r", threads), b.per_thread("s", threads)
    tile = b.shared("tile", (threads,))
    return b.func(copy(x, r), copy(r, tile), *between, copy(shift(tile, by, threads), s),
                  copy(s, out))  # fmt: skip


CTA, WARP = sync("barrier", id=1, threads=64), sync("warp")


@pytest.mark.parametrize(
    ("by", "between", "kind"),
    [
        (0, (), None),  # its own element: program order
        (1, (), "race"),  # another lane of the warp
        (1, (WARP,), "race"),  # lane 31 reads an element of the other warp
        (32, (WARP,), "race"),
        (32, (CTA,), None),
        (1, (CTA,), None),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_threads_exchange_through_shared_memory(by, between, kind, policy):
    given = torch.randn(64)
    found = run(exchange(64, by, *between), [given], policy=policy)
    if kind is None:
        assert found.reports == []
        assert torch.equal(found.outputs[0], given.roll(-by))
    else:
        # with a schedule in which the other warp is late, nothing was written yet
        assert kinds(found) <= {"race", "overwritten-slot", "uninitialised"}
        assert kinds(found) & {"race", "overwritten-slot"}


def test_a_warp_barrier_orders_lanes():
    given = torch.randn(32)
    found = run(exchange(32, 1, WARP), [given])
    assert found.reports == [] and torch.equal(found.outputs[0], given.roll(-1))
    (report,) = run(exchange(32, 1), [given]).reports
    assert report.kind == "race" and "a warp barrier" in report.missing


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"threads": 48}, "barrier-misuse"),  # not a multiple of 32
        ({"threads": 96}, "deadlock"),  # 64 come
        ({"threads": 32}, "race"),  # each warp alone
        ({"id": 16}, "barrier-misuse"),
    ],
)
def test_named_barriers_that_count_wrong(change, kind):
    bad = sync("barrier", **{"id": 1, "threads": 64, **change})
    assert kind in kinds(run(exchange(64, 32, bad), [torch.zeros(64)], policy="round-robin"))


def handed_over(arrive, wait, threads=64):
    """Warp 0 writes a tile, warp 1 reads it."""
    b = Block(64)
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    tile = b.shared("tile", (32,))
    return b.func(b.scope(0, 32, copy(x, tile), *arrive), b.scope(32, 64, *wait, copy(tile, out)))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_producer_arrives_and_a_consumer_waits(policy):
    arrive, wait = sync("barrier_arrive", id=2, threads=64), sync("barrier", id=2, threads=64)
    given = torch.randn(32)
    found = run(handed_over((arrive,), (wait,)), [given], policy=policy)
    assert found.reports == [] and torch.equal(found.outputs[0], given)
    late = run(handed_over((arrive,), (sync("barrier", id=3, threads=64),)), [given])
    assert kinds(late) == {"deadlock"}
    assert "32 more threads at barrier 3" in late.reports[0].missing
    left = run(handed_over((arrive,), ()), [given], policy="round-robin")
    assert "barrier-misuse" in kinds(left)  # arrivals that nobody waits for


# mbarriers


def through_mbarrier(*, count=1, every=32, parity=0, warp=True, init=True, fence=True, meet=True,
                     arrivals=1, turns=1):  # fmt: skip
    """Warp 0 writes, one lane arrives; warp 1 waits and reads."""
    b = Block(64)
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    tile = b.shared("tile", (32,))
    bar = Barrier("full", 1, count, b.top)
    b.barriers.append(bar)
    setup = [sync("init", barrier=bar, count=count)] if init else []
    setup += [sync("fence_init")] if fence else []
    meeting = [sync("barrier", threads=64)] if meet else []
    arrive = (sync("arrive", barrier=bar, every=every),) * arrivals
    return b.func(
        b.scope(0, 1, *setup),
        *meeting,
        b.scope(0, 32, copy(x, tile), *((WARP,) if warp else ()), *arrive),
        b.scope(32, 64, sync("wait", barrier=bar, parity=parity), copy(tile, out)),
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, None),
        ({"count": 32, "every": 1, "warp": False}, None),  # every lane arrives for itself
        ({"warp": False}, "race"),  # lane 0 alone is released
        ({"parity": 1}, "early"),  # passes at once: nothing is known; or hangs, if late
        ({"count": 2}, "deadlock"),
        ({"count": 2, "arrivals": 2}, None),
        ({"init": False}, "barrier-misuse"),
        ({"fence": False}, "barrier-misuse"),
        ({"meet": False}, "barrier-misuse"),
    ],
)
@pytest.mark.parametrize("policy", ["random", "round-robin", "greedy", "reverse"])
def test_an_mbarrier_hands_over(change, kind, policy):
    given = torch.randn(32)
    found = run(through_mbarrier(**change), [given], policy=policy)
    if kind is None:
        assert found.reports == [] and torch.equal(found.outputs[0], given)
    elif kind == "early":
        assert kinds(found) & {"race", "overwritten-slot", "deadlock"}
    elif kind == "race":
        assert kinds(found) & {"race", "overwritten-slot"}
    else:
        assert kind in kinds(found)


def test_a_waiter_two_phases_late_is_told():
    """Nothing holds the producer back: its third arrival wraps the parity."""
    b = Block(64)
    bar = Barrier("full", 1, 1, 0)
    b.barriers.append(bar)
    out = b.param("out", (32,), role="out")
    i, j = LoopVar("i", 0, 3), LoopVar("j", 0, 3)
    one = b.per_thread("one", 64)
    fill = Issue("fill", (Scalar(1.0, F32),), (whole(one),))
    func = b.func(
        b.scope(0, 1, sync("init", barrier=bar, count=1), sync("fence_init")),
        sync("barrier", threads=64),
        fill,
        b.scope(0, 1, For(i, 0, 4, 1, (sync("arrive", barrier=bar, every=1),))),
        b.scope(0, 32, copy(window(whole(one), (0,), (32,)), out)),
        b.scope(32, 64, For(j, 0, 4, 1, (sync("wait", barrier=bar, parity=j.expr() % 2), WARP))),
    )
    found = [kinds(run(func, [], policy=p, seed=s)) for p in POLICIES for s in range(3)]
    assert any("barrier-misuse" in k for k in found)


# cp.async


def fetched(*, commit=True, pending=0, wait=True, meet=True, steps=1, stages=1, ahead=0):
    """Each turn fetches a tile by cp.async and reads it, ``ahead`` turns later."""
    b = Block(64)
    x, out = b.param("x", (steps * 256,)), b.param("out", (steps * 256,), role="out")
    tile = b.shared("tile", (256,), slots=stages)
    r = b.per_thread("r", 256)
    i = LoopVar("i", 0, steps - 1)
    n = i.expr()

    def fetch(at):
        yield copy(window(whole(x), (at * 256,), (256,)), whole(tile, at % stages), "copy_async")
        if commit:
            yield sync("async_commit")

    first = [s for k in range(ahead) for s in fetch(k)]
    body = [*fetch(n + ahead)] if not ahead else []
    body += [sync("async_wait", pending=pending)] if wait else []
    body += [sync("barrier", threads=64)] if meet else []
    body += [
        copy(shift_slot(tile, n % stages), r),
        copy(whole(r), window(whole(out), (n * 256,), (256,))),
    ]
    body += [sync("barrier", threads=64)] if meet else []
    if ahead:
        body.append(When(steps - ahead - n, tuple(fetch(n + ahead))))
        if commit:  # groups stay one per turn
            body.append(When(n + 1 - (steps - ahead), (sync("async_commit"),)))
    return b.func(*first, For(i, 0, steps, 1, tuple(body)))


def shift_slot(tile, slot):
    (v,) = fresh_vars((256,))
    return View(tile, (256,), (v,), ((v.expr() + 100) % 256,), slot)


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"steps": 3}, True),
        ({"steps": 5, "stages": 3, "ahead": 2, "pending": 1}, True),
        ({"wait": False}, False),
        ({"pending": 1}, False),
        ({"commit": False}, False),
        ({"meet": False}, False),
        ({"steps": 5, "stages": 3, "ahead": 2, "pending": 2}, False),  # one group too many
        ({"steps": 5, "stages": 1, "ahead": 2, "pending": 1}, False),  # slots too few
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_cp_async(change, good, policy):
    steps = change.get("steps", 1)
    given = torch.randn(steps * 256)
    found = run(fetched(**change), [given], policy=policy)
    if good:
        assert [str(r) for r in found.reports] == []
        assert torch.equal(found.outputs[0], given.reshape(steps, 256).roll(-100, 1).reshape(-1))
    else:
        assert kinds(found) & {"race", "overwritten-slot"}


@pytest.mark.parametrize("policy", POLICIES)
def test_cp_async_arrives_on_an_mbarrier(policy):
    b = Block(64)
    x, out = b.param("x", (256,)), b.param("out", (256,), role="out")
    tile = b.shared("tile", (256,))
    bar = Barrier("full", 1, 32, b.top)
    b.barriers.append(bar)
    func = b.func(
        b.scope(0, 1, sync("init", barrier=bar, count=32), sync("fence_init")),
        sync("barrier", threads=64),
        b.scope(0, 32, copy(x, tile, "copy_async"), sync("async_arrive", barrier=bar)),
        b.scope(32, 64, sync("wait", barrier=bar, parity=0), copy(tile, out)),
    )
    given = torch.randn(256)
    found = run(func, [given], policy=policy)
    assert found.reports == [] and torch.equal(found.outputs[0], given)


# Tensor copies


def test_a_clipped_tensor_copy_delivers_its_whole_box():
    b = Block(64)
    x, out = b.param("x", (40,)), b.param("out", (64,), role="out")
    tile = b.shared("tile", (64,))
    bar = Barrier("full", 1, 1, b.top)
    b.barriers.append(bar)
    (v,) = fresh_vars((64,))
    box = View(x, (64,), (v,), (v.expr(),), fill=0)

    def func(size):
        return b.func(
            b.scope(0, 1, sync("init", barrier=bar, count=1), sync("fence_init")),
            sync("barrier", threads=64),
            b.scope(0, 1, sync("expect", barrier=bar, bytes=size),
                    copy(box, tile, "copy_async_tensor", barrier=bar, slot=0)),
            sync("wait", barrier=bar, parity=0),
            copy(tile, out),
        )  # fmt: skip

    given = torch.randn(40)
    for policy in POLICIES:
        found = run(func(256), [given], policy=policy)
        assert found.reports == []
        assert torch.equal(found.outputs[0], torch.cat([given, torch.zeros(24)]))
        assert "bytes-mismatch" in kinds(run(func(160), [given], policy=policy))


# Device memory and several CTAs


@pytest.mark.parametrize("meet", ["grid", "cluster", None])
@pytest.mark.parametrize("policy", ["random", "round-robin", "greedy", "reverse"])
def test_ctas_meet_in_device_memory(meet, policy):
    """Each of two CTAs writes its half of a work buffer and reads the other's."""
    b = Block(32, ctas=2, clusters=1 if meet == "cluster" else None)
    x, out = b.param("x", (64,)), b.param("out", (64,), role="out")
    work = b.param("work", (64,), role="work")
    r = b.per_thread("r", 32)
    block = b.grid.coordinate("block", "grid")
    mine, other = (block * 32,), ((1 - block) * 32,)
    func = b.func(
        copy(window(whole(x), mine, (32,)), r),
        copy(r, window(whole(work), mine, (32,))),
        *((sync(meet),) if meet else ()),
        copy(window(whole(work), other, (32,)), r),
        copy(r, window(whole(out), mine, (32,))),
    )
    given = torch.randn(64)
    found = run(func, [given], policy=policy)
    if meet:
        assert found.reports == [] and torch.equal(found.outputs[0], given.roll(32))
    else:
        assert kinds(found) & {"race", "overwritten-slot"}


def test_two_writers_of_one_element():
    """Replicated holders store one value; different values are a race."""
    b = Block(64)
    out = b.param("out", (4,), role="out")
    r = b.held("r", (4,))
    t = b.block.coordinate("t", "threads")

    def func(value):
        return b.func(Issue("fill", (Scalar(value, F32),), (whole(r),)), copy(r, out))

    assert run(func(2.0), []).reports == []
    assert kinds(run(func(t), [])) == {"race"}


def repeated(stop, at=lambda step, warp: 0):
    """Two warps write the same 32 numbers, then the same 32 plus one, and so on."""
    b = Block(64)
    warp, lane = arrange("thread", (2, 32), ("w", "l"))
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    tile, step = b.shared("tile", (64,)), LoopVar("step", 0, 3)
    whose = Coord("w", 0, 1, axis=warp).expr()

    def body(mesh):
        held = b.held("held", (32,), (32,), (lane,), mesh=mesh)
        some = window(whole(tile), (at(step.expr(), whose),), (32,))
        add = Issue("binary", (whole(held), Scalar(1.0, F32)), (whole(held),), {"op": "add"})
        yield copy(x, held)
        yield For(step, 0, stop(whose), 1, (copy(held, some), add))
        yield sync("barrier", id=1, threads=64)

    stored = copy(window(whole(tile), (0,), (32,)), out)
    return b.func(b.arranged((2, 32), ("w", "l"), body), stored)


@pytest.mark.parametrize("policy", POLICIES)
def test_units_that_hold_the_same_may_be_steps_apart(policy):
    """Each writes there in every step: what stays is the last step's, whoever is late."""
    given = torch.randn(32)
    found = run(repeated(lambda w: 3), [given], policy=policy)
    assert found.reports == []
    assert torch.equal(found.outputs[0], given + 1.0 + 1.0)


@pytest.mark.parametrize(
    ("stop", "at"),
    [
        (lambda w: 1 + 2 * w, lambda step, warp: 0),  # warp 0 does not write in later steps
        (lambda w: 3, lambda step, warp: step * 8),  # windows that overlap move on
        (lambda w: 3, lambda step, warp: warp * 8),  # each warp has a window of its own
    ],
)
def test_others_may_not_be_steps_apart(stop, at):
    found = [kinds(run(repeated(stop, at), [torch.randn(32)], policy=p)) for p in POLICIES]
    assert {"race"} <= set().union(*found)
