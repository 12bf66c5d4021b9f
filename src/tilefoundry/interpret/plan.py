"""Which elements each participant of an issue computes, and where its operands lie.

An item is one (participant, element of the written view). Plans are cached: they depend on
the issue, the warp, its lanes and the values of the symbols in its views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilefoundry.interpret.log import Reach
from tilefoundry.interpret.memory import Side
from tilefoundry.interpret.place import Places, Values
from tilefoundry.interpret.report import Access, Report, describe, ranges
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.program import Issue, Scalar, View

VECTOR = 16
"""Most bytes that one participant of a copy without registers moves at a time."""


@dataclass(frozen=True, eq=False)
class Team:
    """Who executes: threads of one CTA (ids there), the mesh that they are units of, and
    the values of symbols for them."""

    cta: int
    threads: Any
    mesh: Mesh
    env: Values


@dataclass(eq=False)
class Plan:
    """Sides of one issue for one team: operands (None for a scalar) and results, item by
    item; ``findings`` are what is wrong with the places themselves."""

    reads: list[Side | None]
    writes: list[Side]
    count: int
    findings: list[Report] = field(default_factory=lambda: list[Report]())
    repeated: bool = False
    """Some element is written by several items."""
    at: Any = None
    """The element of the written view of each item."""
    who: Any = None
    """The participant of each item."""

    @property
    def items(self) -> int:
        return self.count * (len(self.reads) + 1)


class Planner:
    """Plans of one kernel."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def holders(self, view: View, team: Team) -> tuple[Any, Any]:
        """(participant, element of the view) for each element that a participant holds."""
        mine = self.places.held(view.buffer).classes(team.cta, team.threads)
        if any(isinstance(team.env[s], np.ndarray) for s in self.places.free(view)):
            element, inside = self.places.elements(view, team.env)
            owner = self.places.held(view.buffer).owner[element]
            if inside is not None:
                owner = np.where(inside, owner, -2)
            return np.nonzero(np.broadcast_to(owner == mine[:, None], (len(mine), owner.shape[-1])))  # type: ignore[return-value]
        order, ranked = self.places.ranked(view, team.env)
        lo, hi = np.searchsorted(ranked, mine, "left"), np.searchsorted(ranked, mine, "right")
        counts = hi - lo
        who = np.repeat(np.arange(len(mine)), counts)
        nth = np.arange(len(who)) - np.repeat(np.cumsum(counts) - counts, counts)
        return who, order[np.repeat(lo, counts) + nth]

    def dealt(self, view: View, team: Team) -> tuple[Any, Any]:
        """The same for a copy without registers: groups of up to 16 bytes, in turn, small
        enough that every participant takes part where there is enough for all."""
        ordered = self.places.units.ordered(team.mesh)
        element = np.arange(prod(view.shape))
        group = max(1, min(VECTOR * 8 // view.dtype.bits, len(element) // len(ordered)))
        thread = ordered[element // group % len(ordered)]
        place = np.full(self.places.units.threads, -1)
        place[team.threads] = np.arange(len(team.threads))
        who = place[thread]
        keep = who >= 0
        return who[keep], element[keep]

    def side(self, view: View, issue: Issue, team: Team, who: Any, at: Any,
             findings: list[Report], single: int | None = None) -> Side:  # fmt: skip
        """One operand for the items (participant, element of this view)."""
        element, inside = self.places.elements(view, team.env)
        lanes = element.ndim == 2
        element = element[who, at] if lanes else element[at]
        thread: Any = team.threads[who] if single is None else np.int64(single)
        where = None
        if inside is not None:
            good = inside[who, at] if lanes else inside[at]
            if not good.all():
                if view.fill is None:
                    findings.append(self._outside(view, issue, team, who[~good]))
                where = np.flatnonzero(good)
                element = element[where]
                if single is None:
                    thread = thread[where]
                    who = who[where]
        count = len(at)
        if view.storage == "rmem":
            held = self.places.held(view.buffer)
            mine = held.classes(team.cta, team.threads)[who]
            bad = held.owner[element] != mine
            if bad.any():
                findings.append(self._stranger(view, issue, team, thread[bad], element[bad]))
                good = np.flatnonzero(~bad)
                where = good if where is None else where[good]
                element, thread = element[good], thread[good]
        return Side(view, Reach(view.buffer, element, thread), count, where)

    def aligned(self, view: View, shape: tuple[int, ...], at: Any) -> Any:
        """Elements of an operand that meet elements ``at`` of a result of ``shape``."""
        if prod(view.shape) == prod(shape):
            return at
        coords = np.unravel_index(at, shape)
        tail = coords[len(coords) - len(view.shape) :] if view.shape else ()
        out = np.zeros(len(at), np.int64)
        for c, extent in zip(tail, view.shape, strict=True):
            out = out * extent + (c if extent != 1 else 0)
        return out

    def plain(self, issue: Issue, team: Team) -> Plan:
        """An issue that computes each written element from those that it meets."""
        write = issue.writes[0]
        held = [r for r in issue.reads if isinstance(r, View) and r.storage == "rmem"]
        if write.storage == "rmem":
            who, at = self.holders(write, team)
        elif held:
            who, at = self.holders(held[0], team)
            assert prod(held[0].shape) == prod(write.shape), issue.instr
        else:
            who, at = self.dealt(write, team)
        return self.over(issue, team, who, at)

    def over(self, issue: Issue, team: Team, who: Any, at: Any, single: int | None = None) -> Plan:
        """The plan of given items; results outside of their buffer are not computed."""
        findings: list[Report] = []
        write = issue.writes[0]
        target = self.side(write, issue, team, who, at, findings, single)
        if target.where is not None:
            who, at = who[target.where], at[target.where]
            target = Side(write, target.reach, len(at))
        reads: list[Side | None] = [
            None if isinstance(read, Scalar)
            else self.side(read, issue, team, who, self.aligned(read, write.shape, at),
                           findings, single)
            for read in issue.reads
        ]  # fmt: skip
        repeated = len(target.reach.elements) != len(target.reach.element)
        return Plan(reads, [target], len(at), findings, repeated, at, who)

    def _who(self, team: Team, threads: Any) -> str:
        return f"{ranges(np.atleast_1d(threads).tolist())} of CTA {team.cta}"

    def _outside(self, view: View, issue: Issue, team: Team, who: Any) -> Report:
        threads = self._who(team, team.threads[who])
        says = f"{describe(issue)} reaches outside of {view.buffer.name} {list(view.buffer.shape)}"
        access = Access(issue, threads, issue.span)
        return Report("bounds", f"{says} by {threads}", second=access, buffer=view.buffer.name)

    def _stranger(self, view: View, issue: Issue, team: Team, thread: Any, element: Any) -> Report:
        threads = self._who(team, thread)
        at = [int(x) for x in np.unravel_index(int(element[0]), view.buffer.shape or (1,))]
        says = f"{describe(issue)}: {view.buffer.name} {at} is not held by {threads}"
        access = Access(issue, threads, issue.span)
        return Report("not-held", says, second=access, buffer=view.buffer.name)
