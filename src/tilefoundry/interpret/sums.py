"""Matrix products of units that add alone: the lanes of a vector, a core's tile registers.

Each sum is added by the unit that holds it, from what that unit holds or finds in memory, in
the order and with the roundings that the instruction's contract states (``MmaAtom.sums``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilefoundry.interpret.arithmetic import fused, rounded
from tilefoundry.interpret.memory import Side
from tilefoundry.interpret.operand import actor, note, plan_of, slot_of
from tilefoundry.interpret.place import REGISTERS
from tilefoundry.interpret.plan import Planner, Team
from tilefoundry.interpret.report import Report
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ops.base import torch_dtype
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.sums import Sums
from tilefoundry.tir.program import Issue, View

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp


@dataclass(eq=False)
class Alone:
    """One item of ``acc`` for each sum that a unit holds, ``depth`` of ``lhs`` and ``rhs``."""

    acc: Side
    lhs: Side
    rhs: Side
    depth: int
    findings: list[Report] = field(default_factory=lambda: list[Report]())

    @property
    def items(self) -> int:
        return self.acc.count + self.lhs.count + self.rhs.count


def plan(planner: Planner, stmt: Issue, team: Team) -> Alone:
    """The sums that the units of ``team`` hold; of a register file, all are the first's."""
    findings: list[Report] = []
    write = stmt.writes[0]
    lhs, rhs = (r for r in stmt.reads[-2:] if isinstance(r, View))
    if write.storage == REGISTERS:
        who, at = planner.holders(write, team)
    else:
        at = np.arange(write.shape[0] * write.shape[1])
        who = np.zeros(len(at), np.int64)
    depth, columns = lhs.shape[1], rhs.shape[1]
    row, column = at // columns, at % columns
    step = np.arange(depth)
    of_lhs = (row[:, None] * depth + step).ravel()
    of_rhs = (step * columns + column[:, None]).ravel()
    each = np.repeat(who, depth)
    return Alone(
        planner.side(write, stmt, team, who, at, findings),
        planner.side(lhs, stmt, team, each, of_lhs, findings),
        planner.side(rhs, stmt, team, each, of_rhs, findings),
        depth,
        findings,
    )


def execute(warp: Warp, stmt: Issue, atom: MmaAtom, lanes: int, mesh: Mesh) -> None:
    """Every unit reads, adds and writes its sums."""
    planned: Alone = plan_of(warp, stmt, lanes, mesh, lambda t: plan(warp.kernel.planner, stmt, t))
    who = actor(warp, lanes)
    memory, cta = warp.machine.memory, warp.cta

    def values(side: Side) -> Any:
        slot = slot_of(warp, side.view, lanes, stmt)
        note(warp, stmt, side.reach, slot, False, lanes, who)
        found = memory.read(cta, slot, side, stmt)
        exact = torch.float64 if found.dtype.is_floating_point else torch.int64
        return found.to(exact).numpy()

    shape = (planned.acc.count, planned.depth)
    lhs, rhs = (values(s).reshape(shape) for s in (planned.lhs, planned.rhs))
    start = np.zeros(shape[0], lhs.dtype) if stmt.attrs.get("zero") else values(planned.acc)
    assert atom.sums is not None
    dtype = torch_dtype(planned.acc.view.dtype)
    out = torch.from_numpy(add(atom.sums, start, lhs, rhs, dtype)).to(dtype)
    slot = slot_of(warp, planned.acc.view, lanes, stmt)
    note(warp, stmt, planned.acc.reach, slot, True, lanes, who)
    memory.write(cta, slot, planned.acc, out)


def add(sums: Sums, start: Any, lhs: Any, rhs: Any, dtype: torch.dtype) -> Any:
    """``start`` (n) plus the products of ``lhs`` and ``rhs`` (n, depth), as ``sums`` says; all
    in float64 or int64, results rounded to (integers: wrapped into) ``dtype``."""
    if not dtype.is_floating_point:
        bits = torch.iinfo(dtype).bits
        total = start + (lhs * rhs).sum(1)
        return (total + (1 << bits - 1) & (1 << bits) - 1) - (1 << bits - 1)
    width = sum(map(len, sums.chains))
    for first in range(0, lhs.shape[1], width):
        parts: list[Any] = []
        for chain in sums.chains:
            part = np.zeros_like(start) if sums.apart else start
            for k in chain:
                part = fused(lhs[:, first + k], rhs[:, first + k], part, dtype)
            parts.append(part)
        if not sums.apart:
            (start,) = parts
            continue
        total = parts[0]
        for part in parts[1:]:
            total = rounded(total + part, dtype)
        start = rounded(start + total, dtype)
    return start
