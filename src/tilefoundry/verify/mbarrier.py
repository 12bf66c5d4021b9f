"""mbarriers as phases: who arrives in which, what a completed one hands over, who waits.

Every arrival must provably land in one phase, and every wait observe one: then phases are the
same in every interleaving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilefoundry.tir.program import Barrier, Sync
from tilefoundry.verify.roles import WARP, WARPGROUP, Role, Site
from tilefoundry.verify.state import (
    CONTROL,
    COPIED,
    DIMS,
    FENCED,
    INIT,
    OWN,
    PLAIN,
    READ,
    READ_FENCED,
    Arrival,
    Clock,
    Knowledge,
    Phase,
    join,
)

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Machine, Op, Process


def lower(machine: Machine, sync: Sync, site: Site, role: Role) -> Op | None:
    """The operation that ``role`` executes for a statement on an mbarrier."""
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


def find(machine: Machine, cta: int, barrier: Barrier, slot: int, site: Site) -> Phase | None:
    """The barrier object of a block, None (and a finding) if the array has no such slot."""
    found = machine.phases.get((cta, barrier, slot))
    if found is None:
        machine.findings.add(
            "sync-barrier", site.place, None,
            f"slot {slot} of {barrier.name}, which has {barrier.slots}",
            "keep slots below the length of the array",
        )  # fmt: skip
    return found


def use(machine: Machine, phase: Phase, site: Site, me: Knowledge, elected: bool) -> None:
    """A use of a barrier must come after its initialisation, made visible; ``elected``: the
    role's first thread alone uses it."""
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
            phase = machine.phases[me.role.cta, barrier, slot]
            if phase.ready:
                missing = f"{phase.name} is initialised twice"
                machine.findings.add("sync-barrier", site.place, None, missing, "do it once")
            phase.ready, phase.init = True, (me.base + INIT, now)

    return op


def in_phase(machine: Machine, phase: Phase, me: Knowledge, clock: Clock, site: Site,
             group: tuple[object, ...] | None) -> None:  # fmt: skip
    """A contribution must know that the phase before is complete, or it may land there."""
    seen = max(clock[phase.control], me.seen.get(phase.control, 0))
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
    me.seen[phase.control] = phase.done


def _arrive(machine: Machine, sync: Sync, site: Site, count: int, level: int,
            elected: bool) -> Op:  # fmt: skip
    slot = machine.compiler.fn(sync.slot)
    barrier = sync.barrier
    assert barrier is not None
    group = (site.threads, sync.every, sync.kind)
    copies = sync.kind == "async_arrive"

    def op(me: Knowledge) -> None:
        if not sync.over:
            arrive(me, me.role.cta)
            return
        # arrivals at several blocks come there in any order
        me.pass_control()
        for cta in machine.reached(me.role, sync.over, site):
            arrive(me, cta)

    def arrive(me: Knowledge, cta: int) -> None:
        phase = find(machine, cta, barrier, slot(me.env), site)
        if phase is None:
            return
        use(machine, phase, site, me, elected and count == 1)
        now = me.tick() if sync.over else me.pass_control()
        clock = me.publish(level, elected)
        if sync.read:
            clock = machine.handed(clock)
        machine.reaches(cta, site, me, me.base + CONTROL, now)
        in_phase(machine, phase, me, clock, site, group)
        if copies:
            for dim in (PLAIN, FENCED, READ, READ_FENCED):
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


def caused(machine: Machine, phase: Phase, me: Knowledge) -> None:
    """Bytes that another block sends came after all that its sender had waited for: who sees
    them knows how far that was, though nothing of what was written."""
    if not phase.clock:
        phase.clock = [0] * machine.size
    clock = me.publish(3, True)
    for dim in machine.control:
        phase.clock[dim] = max(phase.clock[dim], clock[dim])


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
    phase.clock[phase.dim] = phase.clock[phase.control] = phase.done + 1
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
        phase = find(machine, role.cta, barrier, slot(me.env), site)
        if phase is None:
            return
        use(machine, phase, site, me, elected=False)
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
        phase = find(machine, role.cta, barrier, slot(me.env), site)
        if phase is None:
            return
        use(machine, phase, site, me, elected=role.threads == site.threads[:1])
        known, want = me.common[phase.control], parity(me.env) & 1
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
        if clock is not None and sync.read:
            clock = machine.handed(clock)
        me.waits.setdefault(site, []).append(clock)
        if clock is not None:
            me.learn(clock)

    return op if leader is role else follow


def _leader(machine: Machine, site: Site, role: Role) -> Role:
    """The first role that executes the statement in the same, split, warp."""
    if not role.fits(WARP):
        return role
    return next(r for r in machine.team if r.cta == role.cta
                and r.fits(WARP) and r.warps == role.warps and r.first in site.members)  # fmt: skip


__all__ = ["caused", "find", "in_phase", "lower", "settle", "use"]
