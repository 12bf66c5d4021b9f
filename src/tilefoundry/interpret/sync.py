"""Synchronisation statements, as one warp executes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilefoundry.interpret.barrier import MBarrier
from tilefoundry.interpret.clock import members
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.program import Sync

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp

Steps = Iterator[Callable[[], bool]]


def execute(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
    """One statement; yields what it waits for."""
    if stmt.kind in ELECTED:
        lane = elected(warp, mesh)
        if lane is None or not lanes >> lane & 1:
            return
        lanes = 1 << lane
    found = KINDS[stmt.kind](warp, stmt, lanes, mesh)
    if found is not None:
        yield from found


def elected(warp: Warp, mesh: Mesh) -> int | None:
    """The lane of the first participant, None if it is in another warp."""
    first = int(warp.machine.units.ordered(mesh)[0])
    lane = first - warp.first
    return lane if 0 <= lane < warp.size else None


# mbarriers


def slot_of(warp: Warp, stmt: Sync, lanes: int) -> Any:
    assert stmt.barrier is not None, stmt.kind
    slot = warp.uniform(stmt.slot, lanes, stmt)
    return warp.machine.mbarrier(warp.cta, stmt.barrier, slot)


def init(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    assert stmt.barrier is not None
    thread = warp.base + int(members(lanes)[0])
    count = stmt.count or stmt.barrier.count
    for slot in range(stmt.barrier.slots):
        warp.machine.mbarrier(warp.cta, stmt.barrier, slot).init(count, thread, warp.known.epoch)
        warp.inits.append((stmt.barrier, slot))


def fence_init(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    for barrier, slot in warp.inits:
        warp.machine.mbarrier(warp.cta, barrier, slot).fenced = True


def wait(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
    bar = slot_of(warp, stmt, lanes)
    parity = warp.uniform(stmt.parity, lanes, stmt)
    lane = int(members(lanes)[0])
    bar.visible(warp.base + lane, warp.known.lane(lane), "a wait")
    target = bar.target((warp.number, lanes), parity)
    bar.waits(target)
    says = f"phase of parity {parity} of {bar.name}"
    yield from warp.wait(lambda: bar.passes(parity), stmt, says, bar.lacks)
    bar.waits(target)
    warp.known.acquire(lanes, bar.learned(target))


def arrive(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    ordered = warp.machine.units.ordered(mesh)
    firsts = set(ordered[:: stmt.every or 1].tolist())
    for lane in members(lanes).tolist():
        if warp.first + lane not in firsts:
            continue
        if stmt.over:
            arrive_at(warp, stmt, lanes, lane)
            continue
        bar = slot_of(warp, stmt, lanes)
        bar.visible(warp.base + lane, warp.known.lane(lane), "an arrive")
        warp.machine.moved |= bar.arrive(warp.known.release(1 << lane))


def arrive_at(warp: Warp, stmt: Sync, lanes: int, lane: int) -> None:
    """One lane's arrivals at several CTAs: messages that come there at moments of their own."""
    machine = warp.machine
    assert stmt.barrier is not None
    slot = warp.uniform(stmt.slot, lanes, stmt)
    thread = warp.base + lane
    bars = [
        machine.mbarrier(cta, stmt.barrier, slot)
        for cta in machine.units.along(warp.cta, stmt.over)
    ]
    for bar in bars:
        bar.visible(thread, warp.known.lane(lane), "an arrive")
    clock = warp.known.release(1 << lane)
    for bar in bars:
        work = machine.work("arrive", stmt, warp.cta)

        def come(bar: MBarrier = bar) -> None:
            machine.moved |= bar.arrive(clock)

        work.steps.append(come)
        machine.launch(work)
        machine.reaches(bar.cta, stmt, thread, warp.known.epoch)


def expect(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    bar = slot_of(warp, stmt, lanes)
    lane = int(members(lanes)[0])
    bar.visible(warp.base + lane, warp.known.lane(lane), "an expect")
    warp.machine.moved |= bar.expect(stmt.bytes, warp.known.release(lanes))


def async_arrive(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    bar = slot_of(warp, stmt, lanes)
    works = [*warp.open["async"], *(w for group in warp.groups["async"] for w in group)]
    done = 0
    for work in works:
        done |= work.bits
        for record in work.records:
            record.mark = record.mark or warp.known.epoch
    clocks = []
    for lane in members(lanes).tolist():
        bar.visible(warp.base + lane, warp.known.lane(lane), "an async_arrive")
        clocks.append(warp.known.release(1 << lane).plus(done))

    def fire() -> None:
        for clock in clocks:
            warp.machine.moved |= bar.arrive(clock)

    if all(work.finished for work in works):
        fire()
    else:
        warp.machine.triggers.append((works, fire))


# Meetings


def barrier(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
    every = (1 << warp.size) - 1
    if lanes != every:
        says = f"barrier {stmt.id} is executed by part of a warp: {warp.who(lanes)}"
        warp.report("barrier-misuse", says, stmt, "a barrier counts whole warps")
    if stmt.threads % warp.machine.units.width:
        says = f"barrier {stmt.id} counts {stmt.threads} threads, not a multiple of 32"
        warp.report("barrier-misuse", says, stmt)
    if not 0 <= stmt.id < 16:
        warp.report("barrier-misuse", f"barrier id {stmt.id} is not in 0..15", stmt)
    meeting = warp.machine.meeting(("barrier", warp.cta, stmt.id), stmt.threads)
    if meeting.came and meeting.need != stmt.threads:
        says = f"barrier {stmt.id} counts {stmt.threads} threads here and {meeting.need} elsewhere"
        warp.report("barrier-misuse", says, stmt)
    meeting.need = stmt.threads
    mine = meeting.round
    width = warp.machine.units.width
    if stmt.kind == "barrier":
        warp.known.sync(every)
    warp.machine.moved |= meeting.come(width, warp.known.release(lanes))
    if stmt.kind == "barrier_arrive":
        return

    def missing() -> str:
        return f"{meeting.need - meeting.came} more threads at barrier {stmt.id}"

    yield from warp.wait(lambda: meeting.round > mine, stmt, f"barrier {stmt.id}", missing)
    warp.known.acquire(lanes, meeting.clocks[mine])


def group_of(
    warp: Warp, mesh: Mesh, scope: str, over: Sequence[Axis] | None = None
) -> tuple[Any, int]:
    """(key, number of warps) of those that meet in a scope; of the grid only the CTAs along
    ``over``, where that is given."""
    units = warp.machine.units
    if scope == "warp":
        return (warp.cta, warp.index), 1
    if scope == "cta" or [scope] == list(units.outer[-1:]):
        ctas: list[int] = [warp.cta]
    elif scope == "cluster":
        mine = [int(units.at[x][warp.cta]) for x in units.outer if x != "cta"]
        ctas = [
            cta for cta in range(units.ctas)
            if "cluster" in units.outer
            and [int(units.at[x][cta]) for x in units.outer if x != "cta"] == mine
        ] or [warp.cta]  # fmt: skip
    elif over is not None:
        ctas = sorted(units.along(warp.cta, [a for a in over if a.level != units.level]))
    else:
        ctas = list(range(units.ctas))
    return (scope, ctas[0]), sum(bool(x) for cta in ctas for x in units.lanes(mesh, cta))


def everyone(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
    key, need = group_of(warp, mesh, stmt.kind)
    if warp.came is not None and stmt.kind == "cluster":
        warp.report("barrier-misuse", "meets between the halves of the cluster's barrier", stmt)
    meeting = warp.machine.meeting((stmt.kind, *key), need)
    mine = meeting.round
    warp.known.sync(lanes)
    warp.machine.moved |= meeting.come(1, warp.known.release(lanes))
    says = f"the {stmt.kind} barrier"

    def missing() -> str:
        return f"{meeting.need - meeting.came} more warps"

    yield from warp.wait(lambda: meeting.round > mine, stmt, says, missing)
    warp.known.acquire(lanes, meeting.clocks[mine])


def cluster_arrive(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    key, need = group_of(warp, mesh, "cluster")
    meeting = warp.machine.meeting(("halves", *key), need)
    if warp.came is not None:
        warp.report("barrier-misuse", "arrives at the cluster's barrier twice", stmt)
    warp.came = meeting.round
    warp.known.sync(lanes)
    warp.machine.moved |= meeting.come(1, warp.known.release(lanes))


def cluster_wait(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
    key, need = group_of(warp, mesh, "cluster")
    meeting = warp.machine.meeting(("halves", *key), need)
    mine, warp.came = warp.came, None
    if mine is None:
        warp.report("barrier-misuse", "waits at the cluster's barrier, and has not arrived", stmt)
        return

    def missing() -> str:
        return f"{meeting.need - meeting.came} more warps"

    yield from warp.wait(lambda: meeting.round > mine, stmt, "the cluster barrier", missing)
    warp.known.acquire(lanes, meeting.clocks[mine])


def within_warp(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    warp.known.sync(lanes)


# Fences and groups


def fence_proxy(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    warp.known.fence(lanes)


def wgmma_fence(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    warp.touched = set()


def commit(kind: str) -> Any:
    def close(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
        warp.groups[kind].append(warp.open[kind])
        warp.open[kind] = []

    return close


def drain(kind: str) -> Any:
    def drained(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> Steps:
        groups = warp.groups[kind]
        due = groups[: len(groups) - stmt.pending] if stmt.pending else list(groups)
        works = [work for group in due for work in group]

        def ready() -> bool:
            return all(w.has_read if stmt.read else w.finished for w in works)

        yield from warp.wait(
            ready,
            stmt,
            f"{len(works)} works in flight",
            lambda: "their issue by all warps that take part",
        )
        for work in works:
            warp.known.finish(lanes, work.read_bit if stmt.read else work.bits)
            if kind == "async":  # to others they are now plain accesses of these threads
                for record in work.records:
                    record.epoch = warp.known.epoch
        if not stmt.read:
            del groups[: len(due)]

    return drained


def registers(warp: Warp, stmt: Sync, lanes: int, mesh: Mesh) -> None:
    """No effect on values or order (PTX ISA, setmaxnreg: multiples of 8 from 24 to 256)."""
    if stmt.count % 8 or not 24 <= stmt.count <= 256:
        says = f"setmaxnreg {stmt.count} is no multiple of 8 from 24 to 256"
        warp.report("register-hazard", says, stmt)


ELECTED = frozenset(["init", "fence_init", "expect", "bulk_commit", "bulk_wait"])
KINDS: dict[str, Callable[..., Steps | None]] = {
    "init": init,
    "fence_init": fence_init,
    "wait": wait,
    "arrive": arrive,
    "expect": expect,
    "async_arrive": async_arrive,
    "barrier": barrier,
    "barrier_arrive": barrier,
    "warp": within_warp,
    "cluster": everyone,
    "cluster_arrive": cluster_arrive,
    "cluster_wait": cluster_wait,
    "grid": everyone,
    "fence_proxy": fence_proxy,
    "wgmma_fence": wgmma_fence,
    "wgmma_commit": commit("wgmma"),
    "wgmma_wait": drain("wgmma"),
    "bulk_commit": commit("bulk"),
    "bulk_wait": drain("bulk"),
    "async_commit": commit("async"),
    "async_wait": drain("async"),
    "registers": registers,
}
