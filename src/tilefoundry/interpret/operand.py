"""How one warp reaches the operands of an issue: plans, slots, and whom it tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilefoundry.interpret.clock import members
from tilefoundry.interpret.log import Actor, Reach, Record
from tilefoundry.interpret.plan import Team
from tilefoundry.interpret.registers import touch
from tilefoundry.interpret.report import describe
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.program import Issue, View

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp


def plan_of(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh, make: Callable[[Team], Any],
            index: int | None = None) -> Any:  # fmt: skip
    """The plan of an issue for these lanes, made once; its findings are reported.

    ``index``: the warp that the plan is for, where it is a group's.
    """
    values, team = warp.team(lanes, mesh, warp.kernel.free(stmt))
    who = warp.index if index is None else index
    key = (stmt, warp.kernel.station(stmt, warp.cta), who, lanes, values)
    found = warp.kernel.plans.get(key)
    if found is None:
        found = make(team)
        warp.kernel.keep(key, found)
    for report in found.findings:
        warp.machine.reports.add(report, (stmt,))
    return found


def slot_of(warp: Warp, view: View, lanes: int, stmt: Issue) -> int:
    slot = warp.uniform(view.slot, lanes, stmt)
    if not 0 <= slot < view.buffer.slots:
        says = f"{describe(stmt)}: slot {slot} of {view.buffer.name}, which has {view.buffer.slots}"
        warp.report("bounds", says, stmt, buffer=view.buffer.name)
        slot %= view.buffer.slots
    return slot


def actor(warp: Warp, lanes: int) -> Actor:
    """The lanes of a warp as who accesses, in the generic proxy."""
    return Actor(tuple((warp.first + members(m), c) for m, c in warp.known.of(lanes)))


def note(warp: Warp, stmt: Issue, reach: Reach, slot: int, write: bool, lanes: int,
         who: Actor, home: int = -1) -> list[Record]:  # fmt: skip
    """Tells the log, or for registers the hazards, of an access by the warp's lanes, to the
    shared memory of CTA ``home`` if not their own; returns other units' writes by the same
    statement to the same elements."""
    if reach.buffer.storage == "rmem":
        touch(warp, stmt, reach, write, lanes)
        return []
    record = Record(
        stmt, reach, write, warp.cta * warp.machine.units.threads, warp.cta, warp.index,
        warp.known.epoch, instance=tuple(warp.trail), home=home,
    )  # fmt: skip
    return warp.machine.log.add(record, who, slot)
