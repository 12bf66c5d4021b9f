"""Synchronisation statements as operations of one role: mbarriers, barriers, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilefoundry.tir.program import Barrier, Sync
from tilefoundry.verify.roles import WARP, WARPGROUP, Role, Site
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
    WGMMA,
    Arrival,
    Clock,
    Groups,
    Knowledge,
    Meeting,
    Phase,
    join,
)

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Machine, Op, Process

ELECTED = ("init", "fence_init", "expect", "bulk_commit", "bulk_wait")


def lower(machine: Machine, sync: Sync, site: Site, role: Role) -> Op | None:
    """The operation that ``role`` executes for ``sync``, None if it executes nothing."""
    if sync.kind in ELECTED and site.threads[0] not in role.members:
        return None
    if sync.kind in ("wait", "arrive", "expect", "async_arrive", "init"):
        return _on_barrier(machine, sync, site, role)
    if sync.kind in ("barrier", "barrier_arrive"):
        return _named(machine, sync, site)
    if sync.kind in ("cluster", "grid"):
        return gather(machine, site, role, warp=False)
    if sync.kind == "warp":
        return gather(machine, site, role, warp=True)
    return _LOCAL[sync.kind](sync, site) if sync.kind in _LOCAL else None


# ---- mbarriers


def _on_barrier(machine: Machine, sync: Sync, site: Site, role: Role) -> Op | None:
    assert sync.barrier is not None
    if sync.kind == "init":
        return _init(machine, sync, site)
    if sync.kind == "wait":
        return _wait(machine, sync, site, role)
    if sync.kind == "expect":
        return _arrive(machine, sync, site, 1, 3, elected=True)
    every = 1 if sync.kind == "async_arrive" else max(sync.every, 1)
    firsts = site.threads[::every]
    count = sum(t in role.members for t in firsts)
    if not count:
        return None
    level = _level(site, role, every)
    return _arrive(machine, sync, site, count, level, elected=role.first in firsts)


def _level(site: Site, role: Role, every: int) -> int:
    """The smallest group of threads that has each block of ``every`` participants inside."""
    blocks = [site.threads[i : i + every] for i in range(0, len(site.threads), every)]
    for level, size in enumerate((1, WARP, WARPGROUP)):
        if all(len({t // size for t in b if t in role.members}) <= 1 for b in blocks):
            return level
    return 3


def find(machine: Machine, barrier: Barrier, slot: int, site: Site) -> Phase | None:
    """The barrier object, None (and a finding) if the array has no such slot."""
    found = machine.phases.get((barrier, slot))
    if found is None:
        machine.findings.add(
            "sync-barrier", site.place, None,
            f"slot {slot} of {barrier.name}, which has {barrier.slots}",
            "keep slots below the length of the array",
        )  # fmt: skip
    return found


def use(machine: Machine, phase: Phase, site: Site, me: Knowledge, elected: bool) -> None:
    """A use of a barrier must come after its initialisation, made visible."""
    at, time = phase.init
    own = at - me.base - OWN
    if time and (
        me.common[at] >= time or (elected and 0 <= own < DIMS - OWN and me.elect[own] >= time)
    ):
        return
    machine.findings.add(
        "sync-barrier", site.place, None,
        f"{phase.barrier.name} is used before its initialisation is known to be visible",
        "init and fence_init in one thread, then a barrier over all threads, before any use",
    )  # fmt: skip


def _init(machine: Machine, sync: Sync, site: Site) -> Op:
    barrier = sync.barrier
    assert barrier is not None

    def op(me: Knowledge) -> None:
        now = me.tick()
        if sync.count not in (0, barrier.count):
            machine.findings.add(
                "sync-barrier", site.place, None,
                f"{barrier.name} counts {barrier.count} arrivals, not {sync.count}",
                "initialise it with its count",
            )  # fmt: skip
        for slot in range(barrier.slots):
            phase = machine.phases[barrier, slot]
            if phase.ready:
                missing = f"{phase.name} is initialised twice"
                machine.findings.add("sync-barrier", site.place, None, missing, "do it once")
            phase.ready, phase.init = True, (me.base + INIT, now)

    return op


def in_phase(machine: Machine, phase: Phase, me: Knowledge, clock: Clock, site: Site,
             group: tuple[object, ...] | None) -> None:  # fmt: skip
    """A contribution must know that the phase before is complete, or it may land there."""
    seen = max(clock[phase.dim], me.seen.get(phase.dim, 0))
    known = seen >= phase.done
    if not known and not phase.last_had_bytes:
        known = seen >= phase.done - 1 and all(
            (a.role is me.role and a.group == group)
            or clock[a.role.number * DIMS + CONTROL] >= a.time
            for a in phase.last
        )
    if not known:
        machine.findings.add(
            "sync-barrier", site.place, phase.by.place if phase.by else None,
            f"it may land in the phase of {phase.barrier.name} before the one it belongs to",
            "wait for the use before, on the barrier that the other side arrives on",
        )  # fmt: skip
    me.seen[phase.dim] = phase.done


def _arrive(machine: Machine, sync: Sync, site: Site, count: int, level: int,
            elected: bool) -> Op:  # fmt: skip
    slot = machine.compiler.fn(sync.slot)
    barrier = sync.barrier
    assert barrier is not None
    group = (site.threads, sync.every, sync.kind)
    copies = sync.kind == "async_arrive"

    def op(me: Knowledge) -> None:
        phase = find(machine, barrier, slot(me.env), site)
        if phase is None:
            return
        use(machine, phase, site, me, elected)
        now = me.pass_control()
        clock = me.publish(level, elected)
        in_phase(machine, phase, me, clock, site, group)
        if copies:
            for dim in (PLAIN, FENCED):
                clock[me.base + dim] = me.common[me.base + dim]
            clock[me.base + COPIED] = me.copies.issued
        if not phase.clock:
            phase.clock = [0] * machine.size
        join(phase.clock, clock)
        phase.arrived += count
        phase.expected += sync.bytes if sync.kind == "expect" else 0
        phase.had_bytes = phase.had_bytes or sync.bytes > 0
        phase.arrivals.append(Arrival(me.role, now, group))
        settle(machine, phase, site)

    return op


def settle(machine: Machine, phase: Phase, site: Site) -> None:
    """Complete the phase if all it waits for has come; more than that is a defect."""
    count = phase.barrier.count
    if phase.arrived > count:
        machine.findings.add(
            "sync-barrier", site.place, phase.by.place if phase.by else None,
            f"more than {count} arrivals in one phase of {phase.barrier.name}",
            "make the count equal to the arrivals of one use",
        )  # fmt: skip
    if phase.arrived < count:
        return
    if phase.issued > phase.expected:
        machine.findings.add(
            "sync-barrier", site.place, None,
            f"{phase.issued} bytes arrive in a phase of {phase.barrier.name} that expects "
            f"{phase.expected}", "expect the bytes of all copies of the phase",
        )  # fmt: skip
    elif phase.issued < phase.expected:
        return
    for role, (number, time, waiter) in phase.waiting.items():
        if number == phase.done - 1 and phase.clock[role.number * DIMS + CONTROL] < time:
            machine.findings.add(
                "sync-barrier", waiter.place, site.place,
                f"the phase after the one it waits for may complete first, and the parity of "
                f"{phase.barrier.name} then is that of an older phase",
                "let the arrival wait for this waiter, or give the ring another slot",
            )  # fmt: skip
    if phase.clocks:
        join(phase.clock, phase.clocks[-1])
    phase.clock[phase.dim] = phase.done + 1
    phase.clocks.append(phase.clock)
    phase.clock, phase.by = [], site
    phase.last, phase.arrivals = phase.arrivals, []
    phase.last_had_bytes, phase.had_bytes = phase.had_bytes, False
    phase.done += 1
    phase.arrived = phase.expected = phase.issued = 0


def _wait(machine: Machine, sync: Sync, site: Site, role: Role) -> Op:
    slot, parity = machine.compiler.fns((sync.slot, sync.parity))
    barrier = sync.barrier
    assert barrier is not None
    leader = _leader(machine, site, role)

    def follow(me: Knowledge) -> Process:
        # the lanes of a warp go through a wait together
        seen = len(me.waits.setdefault(site, []))
        ahead = machine.roles[leader].waits.setdefault(site, [])
        if len(ahead) <= seen:
            yield (lambda: len(ahead) > seen), site
        clock = ahead[seen]
        me.waits[site].append(clock)
        me.pass_control()
        if clock is not None:
            me.learn(clock)

    def op(me: Knowledge) -> Process:
        phase = find(machine, barrier, slot(me.env), site)
        if phase is None:
            return
        use(machine, phase, site, me, elected=role.first == site.threads[0])
        known, want = me.common[phase.dim], parity(me.env) & 1
        # the phase of this parity that is the next to complete, or the last that did
        number = known if known & 1 == want else known - 1
        if phase.done <= number:
            yield (lambda: phase.done > number), site
        if phase.done > number + 1:
            machine.findings.add(
                "sync-barrier", site.place, phase.by.place if phase.by else None,
                f"two phases of {phase.barrier.name} may complete before it looks: it would "
                f"wait for a third", "let the arrival wait for this waiter",
            )  # fmt: skip
        phase.waiting[role] = (number, me.pass_control(), site)
        clock = phase.clocks[number] if number >= 0 else None
        me.waits.setdefault(site, []).append(clock)
        if clock is not None:
            me.learn(clock)

    return op if leader is role else follow


def _leader(machine: Machine, site: Site, role: Role) -> Role:
    """The first role that executes the statement in the same, split, warp."""
    if not role.fits(WARP):
        return role
    return next(r for r in machine.layout.roles
                if r.fits(WARP) and r.warps == role.warps and r.first in site.members)  # fmt: skip


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
    def op(me: Knowledge) -> Process:
        meeting = machine.meeting(sync.id, site, sync.threads)
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


def gather(machine: Machine, site: Site, role: Role, warp: bool) -> Op:
    """All participants of the statement meet, or those of each warp."""
    if warp and all(
        site.members.issuperset(range(w * WARP, w * WARP + WARP)) for w in role.warps
    ) and not _split(machine, role):  # fmt: skip

        def lanes(me: Knowledge) -> None:
            me.pass_control()
            me.lift(1)

        return lanes
    partners = [r for r in machine.layout.roles if r.first in site.members]
    if warp:
        partners = [r for r in partners if r.warps & role.warps]
    size = sum(len(r.threads) for r in partners)
    key = (site, frozenset(partners))

    def op(me: Knowledge) -> Process:
        meeting = machine.meeting(key, site, size)
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


def _split(machine: Machine, role: Role) -> bool:
    return any(r is not role and r.warps & role.warps for r in machine.layout.roles)


# ---- what a thread does for itself


def _fence_proxy(sync: Sync, site: Site) -> Op:
    def op(me: Knowledge) -> None:
        own = me.levels[0]
        own[FENCED], own[COPIED_FENCED] = own[PLAIN], own[COPIED]
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


# ---- the end


def finish(machine: Machine, blocked: Mapping[Role, Site]) -> None:
    """What is left when no role can go on."""
    for site in dict.fromkeys(blocked.values()):
        _stuck(machine, site)
    if blocked:
        return
    for phase in machine.phases.values():
        if phase.arrived or phase.issued or phase.expected:
            machine.findings.add(
                "sync-barrier", None, phase.by.place if phase.by else None,
                f"the last phase of {phase.barrier.name} is left incomplete: {phase.arrived} of "
                f"{phase.barrier.count} arrivals, {phase.issued} of {phase.expected} bytes",
                "make the count and the bytes those of one use",
            )  # fmt: skip
        elif phase.last_had_bytes and not any(
            k.common[phase.dim] >= phase.done for k in machine.roles.values()
        ):
            machine.findings.add(
                "sync-drain", None, phase.by.place if phase.by else None,
                f"nobody waits for the last copies that complete on {phase.barrier.name}",
                "wait for every copy before the kernel ends",
            )  # fmt: skip
    for me in machine.roles.values():
        _drained(machine, me)


def _drained(machine: Machine, me: Knowledge) -> None:
    left: list[tuple[str, str]] = []
    issued = max((g.issued for g in me.bulk.values()), default=0)
    if issued > me.elect[BULK_DONE - OWN]:
        left.append(("a bulk store may be in flight", "bulk_commit, then bulk_wait(pending=0)"))
    if me.wgmma.issued > me.levels[0][WGMMA]:
        left.append(("a wgmma may be in flight", "wgmma_commit, then wgmma_wait(pending=0)"))
    known = max(k.common[me.base + COPIED] for k in machine.roles.values())
    if me.copies.issued > max(known, me.levels[0][COPIED]):
        left.append(("a cp.async may be in flight", "async_commit, then async_wait(pending=0)"))
    for missing, fix in left:
        place = me.last_async.place if me.last_async else None
        machine.findings.add("sync-drain", place, None, f"{missing} when the kernel ends", fix)


def _stuck(machine: Machine, site: Site) -> None:
    sync = site.stmt
    name = sync.barrier.name if isinstance(sync, Sync) and sync.barrier is not None else "it"
    for phase in machine.phases.values():
        if (
            isinstance(sync, Sync)
            and phase.barrier is sync.barrier
            and (phase.arrived >= phase.barrier.count and phase.issued < phase.expected)
        ):
            machine.findings.add(
                "sync-barrier", site.place, None,
                f"{phase.issued} bytes arrive in a phase of {name} that expects {phase.expected}",
                "expect the bytes of all copies of the phase",
            )  # fmt: skip
            return
    machine.findings.add(
        "sync-deadlock", site.place, None, f"no arrival that satisfies {name} is reachable",
        "arrive once for every wait, on every path, zero trips included",
    )  # fmt: skip


__all__ = ["find", "finish", "gather", "in_phase", "lower", "settle", "use"]
