"""Instructions, as one warp issues them: copies and operations on what its lanes hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilefoundry.interpret import collective, product
from tilefoundry.interpret.barrier import MBarrier
from tilefoundry.interpret.clock import members
from tilefoundry.interpret.engine import Work
from tilefoundry.interpret.log import Actor, Record
from tilefoundry.interpret.memory import Side
from tilefoundry.interpret.operand import actor, note, plan_of, slot_of
from tilefoundry.interpret.plan import Plan, Team
from tilefoundry.interpret.report import describe
from tilefoundry.interpret.sync import elected
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.ops import find
from tilefoundry.ops.base import Op, torch_dtype
from tilefoundry.ops.signature import Attr
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Issue, View, reach

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp

Steps = Iterator[Callable[[], bool]]


def execute(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> Steps:
    """One issue by the lanes of a warp; yields what it waits for."""
    if stmt.instr == TILED or "atom" in stmt.attrs:
        product.execute(warp, stmt, lanes, mesh)
        return
    effects = warp.kernel.effects(stmt)
    if effects.elected:
        lane = elected(warp, mesh)
        if lane is not None and lanes >> lane & 1:
            engine_copy(warp, stmt, lane, mesh, effects.completion)
        return
    if effects.completion == "async":
        thread_copy(warp, stmt, lanes, mesh)
        return
    if stmt.instr == "reduce":
        if reach(stmt):  # the terms of several CTAs, where they lie
            collective.from_cluster(warp, stmt, lanes, mesh)
            return
        yield from collective.execute(warp, stmt, lanes, mesh)
        return
    plain(warp, stmt, lanes, mesh)


def plain(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> None:
    """Reads, computes and writes at once."""
    plan: Plan = plan_of(warp, stmt, lanes, mesh, lambda t: warp.kernel.planner.plain(stmt, t))
    who = actor(warp, lanes)
    home = warp.cta
    if "peer" in stmt.attrs:
        home = warp.machine.units.along(warp.cta, reach(stmt))[stmt.attrs["peer"]]
        for lane in members(lanes).tolist():
            warp.machine.reaches(home, stmt, warp.base + lane, warp.known.epoch)
    values = [
        read(warp, stmt, side, operand, lanes, who, plan, home)
        for side, operand in zip(plan.reads, stmt.reads, strict=True)
    ]
    (target,) = plan.writes
    slot = slot_of(warp, target.view, lanes, stmt)
    twins = note(warp, stmt, target.reach, slot, True, lanes, who)
    memory = warp.machine.memory
    if stmt.instr == "fill" and not stmt.reads:
        memory.forget(warp.cta, slot, target)
        return
    result = compute(warp, stmt, lanes, values, plan, target.view)
    agrees = all(memory.same(warp.cta, slot, target, result, t.reach) for t in twins)
    memory.write(warp.cta, slot, target, result)
    if not agrees or (plan.repeated and not memory.same(warp.cta, slot, target, result)):
        says = f"{describe(stmt)}: units, {warp.who(lanes)} among them, write different values to "
        says += "one element"
        warp.report("race", says, stmt, "a view or layout under which each writes its own",
                    target.view.buffer.name)  # fmt: skip


def read(warp: Warp, stmt: Issue, side: Side | None, operand: Any, lanes: int,
         who: Actor, plan: Plan, home: int) -> torch.Tensor:  # fmt: skip
    """One operand's values, item by item (of rank 0 for a scalar), from CTA ``home``."""
    if side is None:
        found = number(warp, operand.value, lanes, plan)
        return torch.as_tensor(found).to(torch_dtype(operand.dtype))
    slot = slot_of(warp, side.view, lanes, stmt)
    note(warp, stmt, side.reach, slot, False, lanes, who, home)
    return warp.machine.memory.read(home, slot, side, stmt)


def number(warp: Warp, x: Any, lanes: int, plan: Plan) -> Any:
    """A number, or one per item where it differs among the participants."""
    found = warp.value(x, lanes)
    return found.ravel()[plan.who] if isinstance(found, np.ndarray) else found


def compute(warp: Warp, stmt: Issue, lanes: int, values: list[torch.Tensor], plan: Plan,
            target: View) -> torch.Tensor:  # fmt: skip
    """The written values, one per item."""
    dtype = torch_dtype(target.dtype)
    contract = contract_at(stmt.instr)
    name = stmt.attrs.get("op", stmt.instr)
    if name == "fill":
        return values[0].to(dtype).expand(plan.count)
    if isinstance(contract, CopyInstr):
        return values[0].to(dtype)
    if stmt.instr == "arange":
        start, step = (
            number(warp, stmt.attrs.get(name, default), lanes, plan)
            for name, default in (("start", 0), ("step", 1))
        )
        wide = torch.float64 if target.dtype.is_float else torch.int64
        index = torch.from_numpy(plan.at).to(wide)
        # exact, then rounded once
        return (index * torch.as_tensor(step).to(wide) + torch.as_tensor(start).to(wide)).to(dtype)
    op = find(name)
    assert op is not None, name
    result = TensorType((plan.count,), target.dtype)
    out = op.evaluate(values, attributes(op, stmt), result)
    return out.to(dtype).expand(plan.count)


def attributes(op: Op, stmt: Issue) -> dict[str, Any]:
    """The operation's attributes: those of the issue over its defaults."""
    defaults = {p.name: p.default for p in op.params if isinstance(p, Attr)}
    return {**defaults, **stmt.attrs}


# Asynchronous copies


def engine_copy(warp: Warp, stmt: Issue, lane: int, mesh: Mesh, completion: str) -> None:
    """A tensor or bulk copy: one thread issues, an engine does it."""
    machine = warp.machine
    lanes = 1 << lane
    single = warp.first + lane

    def make(team: Team) -> Plan:
        at = np.arange(prod(stmt.writes[0].shape))
        return warp.kernel.planner.over(stmt, team, np.zeros(len(at), np.int64), at, single)

    plan: Plan = plan_of(warp, stmt, lanes, mesh, make)
    (source,), (target,) = plan.reads, plan.writes
    assert source is not None
    from_slot = slot_of(warp, source.view, lanes, stmt)
    to_slot = slot_of(warp, target.view, lanes, stmt)
    store = completion == "bulk"

    def begun(home: int) -> tuple[Work, list[torch.Tensor]]:
        """The engine's work for the memory of one CTA, as far as it reads."""
        work = machine.work("store" if store else "load", stmt, warp.cta)
        start = Actor(((None, warp.known.lane(lane)),), proxy=True)
        base = warp.cta * machine.units.threads
        for side, slot, write, bit in (
            (source, from_slot, False, work.read_bit),
            (target, to_slot, True, work.write_bit),
        ):
            record = Record(
                stmt, side.reach, write, base, warp.cta, warp.index, done=bit, home=home
            )
            machine.log.add(record, start, slot)
        held: list[torch.Tensor] = []
        work.steps.append(
            lambda: held.append(machine.memory.read(warp.cta, from_slot, source, stmt))
        )
        return work, held

    barrier = stmt.attrs.get("barrier")
    if store or barrier is None:
        work, held = begun(warp.cta)
        work.steps.append(lambda: machine.memory.write(warp.cta, to_slot, target, held.pop()))
        if store:
            warp.open["bulk"].append(work)
            warp.stored.append((work, lane))
        else:
            says = f"{describe(stmt)} completes on no barrier"
            warp.report("barrier-misuse", says, stmt, "an mbarrier that its bytes complete on")
        machine.launch(work)
        return
    number = warp.uniform(stmt.attrs["slot"], lanes, stmt)
    size = prod(target.view.shape) * target.view.dtype.bits // 8
    for home in machine.units.along(warp.cta, reach(stmt)):
        work, held = begun(home)
        bar = machine.mbarrier(home, barrier, number)
        bar.visible(warp.base + lane, warp.known.lane(lane), "a copy's completion")
        if bar.ready and not bar.fenced:
            bar.report("barrier-misuse", "a copy completes on it although no fence makes its "
                       "initialisation visible", "fence_init after init")  # fmt: skip
        phase = bar.attach(size)
        warp.loaded.append((work, home))

        def land(
            home: int = home, work: Work = work, held: list[torch.Tensor] = held,
            bar: MBarrier = bar, phase: int = phase,
        ) -> None:  # fmt: skip
            machine.memory.write(home, to_slot, target, held.pop())
            bar.delivered(size, phase, work.bits)

        work.steps.append(land)
        machine.launch(work)


def thread_copy(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> None:
    """cp.async: each lane copies its share, in its own group."""
    machine = warp.machine
    plan: Plan = plan_of(warp, stmt, lanes, mesh, lambda t: warp.kernel.planner.plain(stmt, t))
    (source,), (target,) = plan.reads, plan.writes
    assert source is not None
    if not plan.count:
        return
    work = machine.work("async", stmt, warp.cta)
    who = actor(warp, lanes)
    base = warp.cta * machine.units.threads
    slots: list[int] = []
    for side, write in ((source, False), (target, True)):
        slot = slot_of(warp, side.view, lanes, stmt)
        slots.append(slot)
        record = Record(stmt, side.reach, write, base, warp.cta, warp.index, done=work.bits,
                        instance=tuple(warp.trail))  # fmt: skip
        machine.log.add(record, who, slot)
        work.records.append(record)
    held: list[torch.Tensor] = []
    work.steps.append(lambda: held.append(machine.memory.read(warp.cta, slots[0], source, stmt)))
    work.steps.append(lambda: machine.memory.write(warp.cta, slots[1], target, held.pop()))
    warp.open["async"].append(work)
    machine.launch(work)
