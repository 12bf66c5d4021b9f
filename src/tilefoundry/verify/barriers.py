"""Synchronisation statements as operations of one role: barriers, groups, fences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilefoundry.tir.program import Sync
from tilefoundry.verify import mbarrier
from tilefoundry.verify.roles import WARP, Role, Site
from tilefoundry.verify.state import (
    BULK_DONE,
    BULK_READ,
    CONTROL,
    COPIED,
    COPIED_FENCED,
    DIMS,
    FENCED,
    INIT,
    OWN,
    PLAIN,
    READ,
    READ_FENCED,
    WGMMA,
    Groups,
    Knowledge,
    Meeting,
    join,
)

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Machine, Op, Process

HALVES = "halves of the cluster's barrier"
ELECTED = ("init", "fence_init", "expect", "bulk_commit", "bulk_wait")


def lower(machine: Machine, sync: Sync, site: Site, role: Role) -> Op | None:
    """The operation that ``role`` executes for ``sync``, None if it executes nothing."""
    if sync.kind in ELECTED and site.threads[0] not in role.members:
        return None
    if sync.kind in ("wait", "arrive", "expect", "async_arrive", "init"):
        return mbarrier.lower(machine, sync, site, role)
    if sync.kind in ("barrier", "barrier_arrive"):
        return _named(machine, sync, site)
    if sync.kind in ("cluster", "grid"):
        return gather(machine, site, role, warp=False, cluster=sync.kind == "cluster")
    if sync.kind in ("cluster_arrive", "cluster_wait"):
        return _half(machine, sync, site, role)
    if sync.kind == "warp":
        return gather(machine, site, role, warp=True)
    if sync.kind not in _LOCAL:
        return None
    op, group = _LOCAL[sync.kind](sync, site), machine.warpgroups.get(role)
    if group is None or not sync.kind.startswith("wgmma"):
        return op
    return group.joined(sync, site, op)


# ---- barriers by thread count


def _pass(meeting: Meeting, size: int) -> bool:
    """Count arrivals; True if they complete the meeting."""
    meeting.arrived += size
    if meeting.arrived < meeting.threads:
        return False
    meeting.generation += 1
    meeting.arrived, meeting.last = 0, meeting.clock
    return True


def _named(machine: Machine, sync: Sync, site: Site) -> Op:
    if sync.kind == "barrier" and len(site.members) == sync.threads:
        first = machine.named.setdefault(sync.id, site)
        if first.members != site.members:
            # a fast set's second turn completes what a slow set has begun
            machine.findings.add(
                "sync-barrier", first.place, site.place,
                f"barrier {sync.id} is that of two sets of threads", "use one id for one set",
            )  # fmt: skip

    def op(me: Knowledge) -> Process:
        meeting = machine.meeting((me.role.cta, sync.id), site, sync.threads)
        if meeting.threads != sync.threads or (
            meeting.arrived + len(me.role.threads) > meeting.threads
        ):
            machine.findings.add(
                "sync-barrier", site.place, meeting.by.place if meeting.by else None,
                f"barrier {sync.id} is over {meeting.threads} threads, and others arrive",
                "count exactly the threads that reach it, and use one id for one set",
            )  # fmt: skip
        me.pass_control()
        join(meeting.clock, me.publish(0, True))
        generation = meeting.generation
        _pass(meeting, len(me.role.threads))
        if sync.kind == "barrier":
            if meeting.generation == generation:
                yield (lambda: meeting.generation > generation), site
            me.meet(meeting.last)

    return op


def gather(machine: Machine, site: Site, role: Role, warp: bool, cluster: bool = False) -> Op:
    """All participants of the statement meet, or those of each warp; of all blocks that are
    followed together where it is a barrier of the ``cluster``."""
    if warp and all(
        site.members.issuperset(range(w * WARP, w * WARP + WARP)) for w in role.warps
    ) and not _split(machine, role):  # fmt: skip

        def lanes(me: Knowledge) -> None:
            me.pass_control()
            me.lift(1)

        return lanes
    partners = [
        r for r in machine.team if r.first in site.members and (cluster or r.cta == role.cta)
    ]
    if warp:
        partners = [r for r in partners if r.warps & role.warps]
    size = sum(len(r.threads) for r in partners)
    key = (site, frozenset(partners))

    def op(me: Knowledge) -> Process:
        meeting = machine.meeting(key, site, size)
        if cluster and role in machine.halfway:
            machine.findings.add(
                "sync-barrier", site.place, None, "it stands between the halves of another",
                "wait for what was arrived at first",
            )  # fmt: skip
        me.pass_control()
        if not warp or role.fits(WARP):
            join(meeting.clock, me.publish(0, True))
        generation = meeting.generation
        _pass(meeting, len(role.threads))
        if meeting.generation == generation:
            yield (lambda: meeting.generation > generation), site
        if warp and not role.fits(WARP):
            me.lift(1)
        else:
            me.meet(meeting.last)

    return op


def _half(machine: Machine, sync: Sync, site: Site, role: Role) -> Op:
    """One half of a barrier of the cluster."""
    size = sum(len(r.threads) for r in machine.team)

    def misused(says: str) -> None:
        fix = "each thread arrives once, then waits, and comes to no other of the cluster between"
        machine.findings.add("sync-barrier", site.place, None, says, fix)

    def arrive(me: Knowledge) -> None:
        meeting = machine.meeting(HALVES, site, size)
        if role in machine.halfway:
            misused("a thread arrives twice at the barrier of the cluster")
            return
        me.pass_control()
        join(meeting.clock, me.publish(0, True))
        machine.halfway[role] = meeting.generation
        _pass(meeting, len(role.threads))

    def wait(me: Knowledge) -> Process:
        meeting = machine.meetings.get(HALVES)
        came = machine.halfway.pop(role, None)
        if meeting is None or came is None:
            misused("a thread waits at the barrier of the cluster and has not arrived")
            return
        if meeting.generation == came:
            yield (lambda: meeting.generation > came), site
        me.meet(meeting.last)

    return arrive if sync.kind == "cluster_arrive" else wait


def _split(machine: Machine, role: Role) -> bool:
    return any(r is not role and r.cta == role.cta and r.warps & role.warps for r in machine.team)


# ---- what a thread does for itself


def _fence_proxy(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        own = me.levels[0]
        own[FENCED], own[READ_FENCED], own[COPIED_FENCED] = own[PLAIN], own[READ], own[COPIED]
        for base in range(0, len(me.common) - DIMS + 1, DIMS):
            me.fence_seen[base + COPIED] = me.common[base + COPIED]

    return op


def _fence_init(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        me.elect[INIT - OWN] = me.time

    return op


def _wgmma_fence(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        me.fence = me.tick()

    return op


def _wgmma_commit(sync: Sync, site: Site) -> Op:
    return lambda me: me.wgmma.commit()


def _wgmma_wait(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        done = me.wgmma.done(sync.pending)
        passed = 0
        while me.wgmma_control and me.wgmma_control[0][0] <= done:
            passed = me.wgmma_control.pop(0)[1]
        for level in me.levels[:3]:
            level[WGMMA] = max(level[WGMMA], done)
            # the warps of a group have issued it together
            level[CONTROL] = max(level[CONTROL], passed)

    return op


def _bulk_commit(sync: Sync, site: Site) -> Op:
    return lambda me: me.bulk.setdefault(site.threads[0], Groups()).commit()


def _bulk_wait(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        done = me.bulk.setdefault(site.threads[0], Groups()).done(sync.pending)
        for dim in (BULK_READ,) if sync.read else (BULK_READ, BULK_DONE):
            me.elect[dim - OWN] = max(me.elect[dim - OWN], done)

    return op


def _async_commit(sync: Sync, site: Site) -> Op:
    return lambda me: me.copies.commit()


def _async_wait(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        me.levels[0][COPIED] = max(me.levels[0][COPIED], me.copies.done(sync.pending))

    return op


_LOCAL: Mapping[str, Callable[[Sync, Site], Op]] = {
    "fence_proxy": _fence_proxy,
    "fence_init": _fence_init,
    "wgmma_fence": _wgmma_fence,
    "wgmma_commit": _wgmma_commit,
    "wgmma_wait": _wgmma_wait,
    "bulk_commit": _bulk_commit,
    "bulk_wait": _bulk_wait,
    "async_commit": _async_commit,
    "async_wait": _async_wait,
}


__all__ = ["gather", "lower"]
