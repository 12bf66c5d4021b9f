"""Matrix products: by a warp at once (mma.sync), or by a warpgroup's tensor core (wgmma);
those of units that add alone are in ``sums.py``.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": operands in shared memory are
read in the asynchronous proxy until the group retires; accumulator and register operands
may not be touched meanwhile; wgmma.fence stands between a register access and the wgmma.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilefoundry.interpret import sums
from tilefoundry.interpret.clock import Clock
from tilefoundry.interpret.log import Actor, Record
from tilefoundry.interpret.memory import Side
from tilefoundry.interpret.operand import actor, note, plan_of, slot_of
from tilefoundry.interpret.place import distinct
from tilefoundry.interpret.plan import Planner, Team
from tilefoundry.interpret.registers import fenced
from tilefoundry.interpret.report import Report, describe, ranges
from tilefoundry.ir.mesh import Mesh
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import contract_at
from tilefoundry.tir.program import Issue, View

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp


@dataclass(eq=False)
class Tile:
    """One operand as a dense matrix: item i of ``side`` is at (row, column) ``at``."""

    side: Side
    shape: tuple[int, int]
    row: Any
    column: Any

    def dense(self, values: torch.Tensor) -> torch.Tensor:
        # products of integers are exact in float64
        narrow = values.dtype.is_floating_point and values.dtype != torch.float64
        wide = torch.float32 if narrow else torch.float64
        out = torch.zeros(self.shape, dtype=wide)
        out[self.row, self.column] = values.to(wide)
        return out


@dataclass(eq=False)
class Product:
    """The part of a product that one group of warps computes."""

    acc: Tile
    lhs: Tile
    rhs: Tile
    findings: list[Report] = field(default_factory=lambda: list[Report]())

    @property
    def items(self) -> int:
        return sum(tile.side.count for tile in (self.acc, self.lhs, self.rhs))


def atom_of(stmt: Issue) -> MmaAtom:
    atom = stmt.attrs["atom"]
    found = contract_at(atom.path)
    assert isinstance(found, MmaAtom), atom.path
    return found


def plan(planner: Planner, stmt: Issue, team: Team) -> Product:
    """Rows and columns are those of the accumulator that the group holds."""
    findings: list[Report] = []
    write = stmt.writes[0]
    views = [r for r in stmt.reads if isinstance(r, View)]
    lhs, rhs = views[-2:]
    who, at = planner.holders(write, team)
    m, n = np.unravel_index(at, write.shape)
    rows, columns = distinct(m), distinct(n)
    # groups that share k in registers add the part that they hold
    depth = np.arange(lhs.shape[1])
    for operand, axis in ((lhs, 1), (rhs, 0)):
        if operand.storage == "rmem":
            _, held = planner.holders(operand, team)
            depth = np.intersect1d(depth, np.unravel_index(held, operand.shape)[axis])
    acc = _tile(planner, stmt, team, write, rows, columns, who, at, findings)
    left = _operand(planner, stmt, team, lhs, rows, depth, findings)
    right = _operand(planner, stmt, team, rhs, depth, columns, findings)
    return Product(acc, left, right, findings)


def _tile(
    planner: Planner,
    stmt: Issue,
    team: Team,
    view: View,
    rows: Any,
    columns: Any,
    who: Any,
    at: Any,
    findings: list[Report],
    single: int | None = None,
) -> Tile:
    r, c = np.unravel_index(at, view.shape)
    row, column = np.searchsorted(rows, r), np.searchsorted(columns, c)
    side = planner.side(view, stmt, team, who, at, findings, single)
    return Tile(side, (len(rows), len(columns)), row, column)


def _operand(planner: Planner, stmt: Issue, team: Team, view: View, rows: Any, columns: Any,
             findings: list[Report]) -> Tile:  # fmt: skip
    if view.storage != "rmem":
        at = (rows[:, None] * view.shape[1] + columns).ravel()
        who = np.zeros(len(at), np.int64)
        single = int(team.threads[0])
        return _tile(planner, stmt, team, view, rows, columns, who, at, findings, single)
    who, at = planner.holders(view, team)
    r, c = np.unravel_index(at, view.shape)
    keep = np.isin(r, rows) & np.isin(c, columns)
    who, at = who[keep], at[keep]
    missing = len(rows) * len(columns) - len(distinct(at))
    if missing:
        threads = f"{ranges(team.threads.tolist())} of CTA {team.cta}"
        says = f"{describe(stmt)}: {missing} elements of {view.buffer.name} are held by none of"
        findings.append(Report("not-held", f"{says} {threads}", buffer=view.buffer.name))
    return _tile(planner, stmt, team, view, rows, columns, who, at, findings)


def multiply(a: torch.Tensor, b: torch.Tensor, old: torch.Tensor | None) -> torch.Tensor:
    out = a @ b
    return out if old is None else out + old


def execute(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> None:
    atom = atom_of(stmt)
    if atom.sums is not None:
        sums.execute(warp, stmt, atom, lanes, mesh)
        return
    units = warp.machine.units
    warps = max(1, atom.execution_mesh.units // units.width)
    first = warp.index // warps * warps
    if warps > 1:
        gather(warp, stmt, mesh, first, warps)
        return
    planned: Product = plan_of(
        warp, stmt, lanes, mesh, lambda t: plan(warp.kernel.planner, stmt, t)
    )
    who = actor(warp, lanes)
    memory = warp.machine.memory

    def operand(tile: Tile) -> torch.Tensor:
        slot = slot_of(warp, tile.side.view, lanes, stmt)
        note(warp, stmt, tile.side.reach, slot, False, lanes, who)
        return tile.dense(memory.read(warp.cta, slot, tile.side, stmt))

    a, b = operand(planned.lhs), operand(planned.rhs)
    old = None if stmt.attrs.get("zero") else operand(planned.acc)
    target = planned.acc
    slot = slot_of(warp, target.side.view, lanes, stmt)
    note(warp, stmt, target.side.reach, slot, True, lanes, who)
    out = multiply(a, b, old)[target.row, target.column]
    memory.write(warp.cta, slot, target.side, out)


# wgmma


def gather(warp: Warp, stmt: Issue, mesh: Mesh, first: int, warps: int) -> None:
    """The warps of a warpgroup issue one by one; the last hands it to the tensor core."""
    machine = warp.machine
    serial = warp.serial
    warp.serial += 1
    key = (warp.cta, first, serial)
    if key not in machine.gathering:
        machine.gathering[key] = [machine.work("wgmma", stmt, warp.cta)]
    came = machine.gathering[key]
    work = came[0]
    if work.issue is not stmt:
        says = f"{describe(stmt)} by {warp.who(1)} while its warpgroup issues another wgmma"
        warp.report("barrier-misuse", says, stmt)
    came.append(warp)
    warp.open["wgmma"].append(work)
    fenced(warp, stmt)
    if len(came) == warps + 1:
        del machine.gathering[key]
        _launch(warp, work, sorted(came[1:], key=lambda w: w.index), stmt, mesh)
    else:
        work.steps = [_never]


def _never() -> None:
    raise AssertionError("a wgmma that has not been issued by all of its warps does not run")


def _launch(last: Warp, work: Any, team: list[Warp], stmt: Issue, mesh: Mesh) -> None:
    """``last`` is at the statement: its loop variables and counters are those of the team."""
    lead, machine = team[0], last.machine
    threads = np.concatenate([w.ids for w in team])
    every = (1 << lead.size) - 1

    def make(given: Team) -> Product:
        whole = Team(given.cta, threads, given.mesh, given.env)
        return plan(lead.kernel.planner, stmt, whole)

    planned: Product = plan_of(last, stmt, every, mesh, make, lead.index)
    start = reduce(Clock.meet, (w.known.common((1 << w.size) - 1) for w in team))
    actor = Actor(((None, start),), proxy=True)
    base = lead.cta * machine.units.threads
    memory, cta = machine.memory, lead.cta
    slots: list[int] = []
    for tile in (planned.lhs, planned.rhs, planned.acc):
        slot = slot_of(last, tile.side.view, every, stmt)
        slots.append(slot)
        if tile.side.view.storage == "rmem":
            work.registers.append((tile.side.reach, tile is planned.acc))
            continue
        record = Record(stmt, tile.side.reach, False, base, cta, done=work.bits, named=threads)
        machine.log.add(record, actor, slot)
    results: list[torch.Tensor] = []

    def fetch() -> None:
        a, b = (
            tile.dense(memory.read(cta, slot, tile.side, stmt))
            for tile, slot in zip((planned.lhs, planned.rhs), slots, strict=False)
        )
        results.append(a @ b)

    def retire() -> None:
        acc = planned.acc
        out = results.pop()
        if not stmt.attrs.get("zero"):
            out = out + acc.dense(memory.read(cta, slots[2], acc.side, stmt))
        memory.write(cta, slots[2], acc.side, out[acc.row, acc.column])

    work.steps = [fetch, retire]
    for warp in team:
        warp.flight.append(work)
    machine.queue((cta, lead.index), work)
