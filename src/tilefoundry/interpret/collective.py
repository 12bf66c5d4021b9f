"""Reductions: over what a unit holds, and over the units of mesh axes that all end with the
combined value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilefoundry.interpret.clock import members
from tilefoundry.interpret.memory import Side
from tilefoundry.interpret.operand import actor, note, plan_of, slot_of
from tilefoundry.interpret.plan import Plan, Planner, Team
from tilefoundry.interpret.report import Report
from tilefoundry.interpret.sync import group_of
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.ops import find
from tilefoundry.ops.base import torch_dtype
from tilefoundry.tir.program import Issue, View, reach

if TYPE_CHECKING:
    from tilefoundry.interpret.warp import Warp

Steps = Iterator[Callable[[], bool]]


@dataclass(eq=False)
class Reduction:
    """Terms of each item: ``order`` sorts the terms by item, ``counts`` of them each."""

    source: Side
    target: Side
    order: Any
    counts: Any
    code: Any
    """Of each item: which group of combining units and which element of the result."""
    rank: Any
    """Of each item: the unit's place in its group."""
    findings: list[Report] = field(default_factory=lambda: list[Report]())

    @property
    def items(self) -> int:
        return len(self.order) + len(self.counts)


def plan(planner: Planner, stmt: Issue, team: Team) -> Reduction:
    """Items are the written elements that the participants hold."""
    findings: list[Report] = []
    write = stmt.writes[0]
    (source,) = (r for r in stmt.reads if isinstance(r, View))
    who, at = planner.holders(write, team)
    size = prod(write.shape)
    meets = _result_of(stmt, source.shape, write.shape)
    from_who, from_at = planner.holders(source, team)
    terms = from_who * size + meets[from_at]
    items = who * size + at
    keep = np.isin(terms, items)
    from_who, from_at, terms = from_who[keep], from_at[keep], terms[keep]
    by_item = np.argsort(items, kind="stable")
    who, at, items = who[by_item], at[by_item], items[by_item]
    order = np.argsort(terms, kind="stable")
    ranked = terms[order]
    counts = np.searchsorted(ranked, items, "right") - np.searchsorted(ranked, items, "left")
    read = planner.side(source, stmt, team, from_who[order], from_at[order], findings)
    target = planner.side(write, stmt, team, who, at, findings)
    over: tuple[Axis, ...] = tuple(stmt.attrs.get("over", ()))
    units = planner.places.units
    group = np.zeros(len(team.threads), np.int64)
    rank = np.zeros(len(team.threads), np.int64)
    across = stmt.attrs.get("scope") == "grid"
    for axis in team.mesh.axes:
        if axis.level != units.level and not across:
            continue
        coordinate = units.coordinate(axis, team.cta, team.threads)
        if axis in over:
            rank = rank * axis.extent + coordinate
        else:
            group = group * axis.extent + coordinate
    return Reduction(read, target, order, counts, group[who] * size + at, rank[who], findings)


def _result_of(stmt: Issue, shape: tuple[int, ...], result: tuple[int, ...]) -> Any:
    """The element of the result that each element of the source goes into."""
    size = prod(shape)
    axes = stmt.attrs.get("axes")
    if axes is None or stmt.attrs.get("op") == "combine":
        assert prod(result) == size
        return np.arange(size)
    real = {a % len(shape) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))}
    coords = np.unravel_index(np.arange(size), shape)
    out = np.zeros(size, np.int64)
    for n, c in enumerate(coords):
        if n not in real:
            out = out * shape[n] + c
    return out


def kind_of(stmt: Issue) -> str:
    return str(stmt.attrs.get("kind", "sum")).lower().split(".")[-1]


def combine(stmt: Issue, terms: torch.Tensor, kind: str, view: View) -> torch.Tensor:
    """Rows of terms to one value each."""
    op = find("reduce")
    assert op is not None
    attrs = {"axes": (1,), "keepdim": False, "kind": kind}
    out = op.evaluate([terms], attrs, TensorType((terms.shape[0],), view.dtype))
    return out.to(torch_dtype(view.dtype))


def local(stmt: Issue, planned: Reduction, terms: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """(value of each item, whether it has terms at all)."""
    view = planned.target.view
    counts = planned.counts
    has = counts > 0
    out = torch.zeros(len(counts), dtype=torch_dtype(view.dtype))
    ends = np.cumsum(counts)
    for count in np.unique(counts[has]).tolist():
        rows = np.flatnonzero(counts == count)
        index = (ends[rows] - count)[:, None] + np.arange(count)
        picked = terms[torch.from_numpy(index)]
        if stmt.attrs.get("op") == "combine":
            assert count == 1
            out[rows] = picked[:, 0].to(out.dtype)
        else:
            out[rows] = combine(stmt, picked, kind_of(stmt), view)
    return out, has


def execute(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> Steps:
    planned: Reduction = plan_of(
        warp, stmt, lanes, mesh, lambda t: plan(warp.kernel.planner, stmt, t)
    )
    memory = warp.machine.memory
    who = actor(warp, lanes)
    slot = slot_of(warp, planned.source.view, lanes, stmt)
    note(warp, stmt, planned.source.reach, slot, False, lanes, who)
    values, has = local(stmt, planned, memory.read(warp.cta, slot, planned.source, stmt))
    scope = stmt.attrs.get("scope")
    if scope is None:
        if not has.all():
            says = f"{stmt.instr}: some results have no term in {warp.who(lanes)}"
            warp.report("not-held", says, stmt, "a scope to combine over")
    else:
        key, need = group_of(warp, mesh, scope, stmt.attrs["over"])
        meeting = warp.machine.meeting((stmt, *key), need)
        mine = meeting.round
        warp.known.sync(lanes)
        keep = np.flatnonzero(has)
        gift = (planned.code[keep], planned.rank[keep], values[torch.from_numpy(keep)])
        meeting.gifts.append(gift)
        warp.machine.moved |= meeting.come(1, warp.known.release(lanes))
        says = f"a reduction over {scope}"

        def missing() -> str:
            return f"{meeting.need - meeting.came} more warps"

        yield from warp.wait(lambda: meeting.round > mine, stmt, says, missing)
        warp.known.acquire(lanes, meeting.clocks[mine])
        values = together(stmt, meeting.shown[mine], planned)
    slot = slot_of(warp, planned.target.view, lanes, stmt)
    note(warp, stmt, planned.target.reach, slot, True, lanes, who)
    memory.write(warp.cta, slot, planned.target, values)


def from_cluster(warp: Warp, stmt: Issue, lanes: int, mesh: Mesh) -> None:
    """What lies in the same place of the shared memories of several CTAs, combined by each
    participant for what it holds of the result."""
    machine = warp.machine
    planned: Plan = plan_of(warp, stmt, lanes, mesh, lambda t: warp.kernel.planner.plain(stmt, t))
    (source,), (target,) = planned.reads, planned.writes
    assert source is not None
    who = actor(warp, lanes)
    slot = slot_of(warp, source.view, lanes, stmt)
    terms: list[torch.Tensor] = []
    for home in machine.units.along(warp.cta, reach(stmt)):
        note(warp, stmt, source.reach, slot, False, lanes, who, home)
        terms.append(machine.memory.read(home, slot, source, stmt))
        for lane in members(lanes).tolist():
            machine.reaches(home, stmt, warp.base + lane, warp.known.epoch)
    kind = kind_of(stmt)
    values = combine(stmt, torch.stack(terms, 1), "max" if kind == "abs_max" else kind, target.view)
    slot = slot_of(warp, target.view, lanes, stmt)
    note(warp, stmt, target.reach, slot, True, lanes, who)
    machine.memory.write(warp.cta, slot, target, values)


def together(stmt: Issue, gifts: list[Any], planned: Reduction) -> torch.Tensor:
    """The combined value of each item: its group's terms in the order of their units."""
    code = np.concatenate([g[0] for g in gifts])
    rank = np.concatenate([g[1] for g in gifts])
    values = torch.cat([g[2] for g in gifts])
    # units that hold the same term as another of the same place bring it once
    _, once = np.unique(np.stack([code, rank]), axis=1, return_index=True)
    code, values = code[once], values[torch.from_numpy(once)]
    out = torch.zeros(len(planned.code), dtype=values.dtype)
    lo = np.searchsorted(code, planned.code, "left")
    counts = np.searchsorted(code, planned.code, "right") - lo
    kind = kind_of(stmt)
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        assert count, "every combined value has a term"
        picked = values[torch.from_numpy(lo[rows][:, None] + np.arange(count))]
        out[rows] = combine(stmt, picked, "max" if kind == "abs_max" else kind,
                            planned.target.view)  # fmt: skip
    return out
