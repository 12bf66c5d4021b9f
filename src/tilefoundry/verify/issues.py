"""Instructions as operations of one role: their accesses, and how they complete."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilefoundry.tir.effects import Effects
from tilefoundry.tir.program import Issue, reach
from tilefoundry.verify import barriers, mbarrier
from tilefoundry.verify.memory import Access, unwritten
from tilefoundry.verify.roles import WARPGROUP, Role, Site
from tilefoundry.verify.state import (
    BULK_DONE,
    BULK_READ,
    CONTROL,
    COPIED,
    PLAIN,
    READ,
    WGMMA,
    Groups,
    Knowledge,
    Slot,
)
from tilefoundry.verify.touch import Box, Touch, meet, touches

if TYPE_CHECKING:
    from tilefoundry.verify.machine import Machine, Op
    from tilefoundry.verify.warpgroup import Warpgroup

ACQUIRE = "wait for the wgmma group (wgmma_wait) before its registers are touched"


def lower(machine: Machine, issue: Issue, effect: Effects, site: Site, role: Role) -> Op | None:
    """The operation that ``role`` executes for ``issue``."""
    known = machine.layout.touched
    roles = machine.layout.roles
    key = (issue, roles[role.number % len(roles)])
    every = known.get(key)
    if every is None:
        every = known[key] = touches(issue, role, machine.compiler)
    memory = tuple(t for t in every if _shared(machine, t))
    registers = tuple(t for t in every if t.view.storage == "rmem")
    if effect.elected:
        if site.threads[0] not in role.members:
            return None
        if effect.completion == "mbarrier":
            return _load(machine, issue, site, memory)
        return _store(machine, site, memory)
    if effect.completion == "wgmma":
        group = machine.warpgroups.get(role)
        return _wgmma(machine, site, memory, registers, group, bool(issue.attrs.get("zero")))
    if effect.completion == "async":
        return _copy_async(machine, site, memory)
    if issue.instr == "fill" and not issue.reads:
        return None  # nothing is written yet
    plain = _plain(machine, issue, site, memory, registers)
    if not effect.collective:
        return plain
    return _collective(machine, issue, site, role, plain)


def _shared(machine: Machine, touch: Touch) -> bool:
    """Memory that several threads see and the kernel writes, or should."""
    if touch.view.storage == "rmem":
        return False
    if touch.view.storage == "gmem" and machine.layout.threads == 1:
        return False  # one thread's own order; blocks are kept apart by their windows
    return touch.buffer in machine.written or touch.view.storage != "gmem"


def _record(machine: Machine, site: Site, me: Knowledge, touch: Touch, owner: Knowledge | None,
            dim: int, time: int, elected: bool, cta: int | None = None) -> None:  # fmt: skip
    """An access to memory, of block ``cta`` if that is not the role's own."""
    slot = touch.slot(me.env)
    plain = dim in (PLAIN, READ, COPIED) and owner is not None
    new = Access(site, touch, touch.box(me.env), touch.write, owner, dim, time, plain)
    machine.memories[me.role.cta if cta is None else cta].access(new, slot, me, elected)


def _load(machine: Machine, issue: Issue, site: Site, memory: tuple[Touch, ...]) -> Op | None:
    barrier = issue.attrs.get("barrier")
    into = issue.writes[0]
    size = prod(into.shape) * into.dtype.bits // 8
    if barrier is None:
        machine.findings.add(
            "sync-barrier", site.place, None, "the copy completes on no barrier",
            "give it the barrier that its readers wait on",
        )  # fmt: skip
        return None
    slot = machine.compiler.fn(issue.attrs.get("slot", 0))
    over = reach(issue)

    def op(me: Knowledge) -> None:
        for cta in machine.reached(me.role, over, site):
            load(me, cta)

    def load(me: Knowledge, cta: int) -> None:
        phase = mbarrier.find(machine, cta, barrier, slot(me.env), site)
        if phase is None:
            return
        mbarrier.use(machine, phase, site, me, elected=True)
        mbarrier.in_phase(machine, phase, me, me.publish(3, True), site, None)
        for touch in memory:
            # complete when the phase is
            into = cta if touch.view.storage != "gmem" else None
            _record(machine, site, me, touch, None, phase.dim, phase.done + 1, True, into)
        phase.issued += size
        phase.had_bytes = True
        if over:
            mbarrier.caused(machine, phase, me)
        mbarrier.settle(machine, phase, site)

    return op


def _store(machine: Machine, site: Site, memory: tuple[Touch, ...]) -> Op:
    def op(me: Knowledge) -> None:
        me.last_async = site
        time = me.bulk.setdefault(site.threads[0], Groups()).issue()
        for touch in memory:
            _record(machine, site, me, touch, me, BULK_DONE if touch.write else BULK_READ,
                    time, True)  # fmt: skip

    return op


def _wgmma(machine: Machine, site: Site, memory: tuple[Touch, ...],
           registers: tuple[Touch, ...], group: Warpgroup | None,
           fresh: bool) -> Op:  # fmt: skip
    """``group``: the warpgroup that the role is a part of; ``fresh``: the old value of the
    accumulator is not read."""
    written = {t.buffer for t in registers if t.write}
    full = len(site.threads) % WARPGROUP == 0

    def op(me: Knowledge) -> None:
        me.last_async = site
        time = me.wgmma.issue()
        me.wgmma_control.append((time, me.levels[0][CONTROL]))
        me.wgmma_site = site
        if group is not None:
            group.step(me, site, tuple((t.slot(me.env), t.box(me.env)) for t in memory))
            group.issued(me)
        for touch in registers:
            box, key = touch.box(me.env), (touch.buffer, touch.slot(me.env))
            if touch.write or not (fresh and touch.buffer in written):
                _fill(machine, site, me, touch, key, box)
            touched = max(
                (when for seen, when in me.touched.get(key, {}).items() if meet(seen, box)),
                default=0,
            )
            if not me.fence or touched > me.fence:
                machine.findings.add(
                    "sync-registers", site.place, None,
                    f"no wgmma_fence since the registers of {touch.buffer.name} were touched",
                    "wgmma_fence before the first wgmma that uses them",
                )  # fmt: skip
            me.flying.setdefault(key, {})[box] = time
        if full:
            for touch in memory:
                _record(machine, site, me, touch, me, WGMMA, time, False)

    return op


def _copy_async(machine: Machine, site: Site, memory: tuple[Touch, ...]) -> Op:
    def op(me: Knowledge) -> None:
        me.last_async = site
        time = me.copies.issue()
        for touch in memory:
            _record(machine, site, me, touch, me, COPIED, time, False)

    return op


def _plain(machine: Machine, issue: Issue, site: Site, memory: tuple[Touch, ...],
           registers: tuple[Touch, ...]) -> Op:  # fmt: skip
    over = reach(issue)

    def op(me: Knowledge) -> None:
        now = me.tick()
        me.levels[0][PLAIN] = me.levels[0][READ] = now
        for touch in registers:
            box, key = touch.box(me.env), (touch.buffer, touch.slot(me.env))
            for seen, time in me.flying.get(key, {}).items():
                if time > me.levels[0][WGMMA] and meet(seen, box):
                    machine.findings.add(
                        "sync-registers", me.wgmma_site.place if me.wgmma_site else None,
                        site.place, f"the wgmma that uses {touch.buffer.name} may be in flight",
                        ACQUIRE,
                    )  # fmt: skip
            me.touched.setdefault(key, {})[box] = now
            _fill(machine, site, me, touch, key, box)
        for touch in memory:
            dim = PLAIN if touch.write else READ
            if touch.view.storage == "gmem":
                _record(machine, site, me, touch, me, dim, now, False)
                continue
            for cta in machine.reached(me.role, over, site):
                _record(machine, site, me, touch, me, dim, now, False, cta)
                machine.reaches(cta, site, me, me.base + dim, now)

    return op


def _fill(machine: Machine, site: Site, me: Knowledge, touch: Touch, key: Slot, box: Box) -> None:
    """Registers are written before they are read."""
    filled = me.filled.setdefault(key, set())
    if touch.write:
        filled.add(box)
    elif not any(meet(seen, box) for seen in filled):
        unwritten(machine.findings, site, touch)


def _collective(machine: Machine, issue: Issue, site: Site, role: Role, plain: Op) -> Op | None:
    """All participants meet before the result is there."""
    meet_all = barriers.gather(machine, site, role, warp=issue.attrs.get("scope") == "warp")

    def op(me: Knowledge):
        plain(me)
        return meet_all(me)

    return op


__all__ = ["lower"]
