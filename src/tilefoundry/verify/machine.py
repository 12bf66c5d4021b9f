"""The abstract machine: roles run as processes, in one fixed interleaving, with clocks.

Every wait is monotone and every arrival lands in a phase that is proven to be the only one
possible, so whether the program runs to its end, and what happens before what, is the same
in every interleaving; conflicts are judged by the clocks, never by the order of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilefoundry.ir.expr import Sym
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Advance, For, Issue, Stmt, Sync, When, With
from tilefoundry.verify import barriers, issues
from tilefoundry.verify.cluster import Block, Remote, targets
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.finish import finish
from tilefoundry.verify.memory import Memory, Unit
from tilefoundry.verify.numbers import Compiler
from tilefoundry.verify.roles import UNIT, Layout, Role, Site, coordinate
from tilefoundry.verify.state import (
    CONTROL,
    DIMS,
    HANDED,
    Clock,
    Knowledge,
    Meeting,
    Phase,
    Ready,
    TooLarge,
)
from tilefoundry.verify.trips import Cut, cuts, iterations
from tilefoundry.verify.warpgroup import Warpgroup

Process: TypeAlias = Iterator[tuple[Ready, Site]]
Op: TypeAlias = Callable[[Knowledge], Process | None]
EVENTS = 400_000
"""Statements that one run may execute before it is called too large."""


class Machine:
    """Blocks of a kernel that are followed together, ready to run: one, or a cluster's."""

    def __init__(self, layout: Layout, blocks: tuple[Block, ...],
                 overlaps: dict[Unit, list[Unit]], findings: Findings,
                 compiler: Compiler) -> None:  # fmt: skip
        self.layout, self.blocks, self.findings = layout, blocks, findings
        self.compiler = compiler
        func = layout.func
        count = len(layout.roles)
        self.team = tuple(
            replace(r, number=cta * count + r.number, cta=cta)
            for cta in range(len(blocks))
            for r in layout.roles
        )
        """The roles of all blocks."""
        self.memories = [Memory(findings, overlaps) for _ in blocks]
        self.values: list[dict[Sym, int]] = [
            {
                c: coordinate(c.axis, block.get(c.axis.level, 0))
                for c in layout.coords
                if c.axis is not None and c.axis.level != UNIT
            }
            for block in blocks
        ]
        self.cuts: list[dict[For, Cut]] = [cuts(layout, v, compiler) for v in self.values]
        base = len(self.team) * DIMS
        self.phases: dict[tuple[int, object, int], Phase] = {}
        for cta in range(len(blocks)):
            for barrier in func.barriers:
                for slot in range(barrier.slots):
                    at = base + 2 * len(self.phases)
                    self.phases[cta, barrier, slot] = Phase(barrier, slot, at, cta)
        self.size = base + 2 * len(self.phases)
        self.control = [r.number * DIMS + CONTROL for r in self.team]
        self.control += [p.control for p in self.phases.values()]
        """Dimensions that say how far others have come, and nothing of memory."""
        self.kept = set(self.control)
        self.kept |= {r.number * DIMS + d for r in self.team for d in HANDED}
        """Dimensions that a hand-over of what was only read passes on."""
        self.remote: dict[tuple[int, Site, Role], Remote] = {}
        """The last that each statement of a role did in the memory of another block."""
        self.meetings: dict[object, Meeting] = {}
        self.halfway: dict[Role, int] = {}
        """Who has arrived at the cluster's barrier, and not waited yet: in which of its turns."""
        self.named: dict[int, Site] = {}
        """Where all threads of a named barrier first meet."""
        self.written = {
            v.buffer for s in layout.sites if isinstance(s, Issue) for v in s.writes
        }  # fmt: skip
        self.events = 0
        self.roles: dict[Role, Knowledge] = {}
        self.warpgroups = {
            role: group
            for group in (
                Warpgroup(findings, self.roles,
                          tuple(self.team[cta * count + r.number] for r in parts))
                for cta in range(len(blocks))
                for parts in layout.divided
            )
            for role in group.parts
        }  # fmt: skip

    def run(self) -> None:
        """Run all roles to their end, or until none can go on."""
        programs = {role: self._lower(self.layout.func.body, role) for role in self.team}
        size = len(self.compiler.place)
        for role, program in programs.items():
            env = [0] * (size + 1)
            for sym, at in self.compiler.place.items():
                env[at] = self._value(sym, role)
            self.roles[role] = Knowledge(role, role.number * DIMS, self.size, env)
            programs[role] = program
        alive: list[tuple[Role, Process, tuple[Ready, Site] | None]] = [
            (role, self._run(program, self.roles[role]), None) for role, program in programs.items()
        ]
        progress = True
        while alive and progress:
            progress = False
            left: list[tuple[Role, Process, tuple[Ready, Site] | None]] = []
            for role, process, blocked in alive:
                if blocked is not None and not blocked[0]():
                    left.append((role, process, blocked))
                    continue
                progress = True
                stop = next(process, None)
                if stop is not None:
                    left.append((role, process, stop))
            alive = left
        finish(self, {role: blocked[1] for role, _, blocked in alive if blocked})

    def _value(self, sym: Sym, role: Role) -> int:
        if isinstance(sym, Coord) and sym.axis is not None:
            if sym.axis.level == UNIT:
                return coordinate(sym.axis, role.first)
            return self.values[role.cta].get(sym, 0)
        return 0

    def _run(self, program: tuple[Op, ...], me: Knowledge) -> Process:
        for op in program:
            blocking = op(me)
            if blocking is not None:
                yield from blocking

    # ---- lowering of statements to operations of one role

    def _lower(self, body: tuple[Stmt, ...], role: Role) -> tuple[Op, ...]:
        out: list[Op] = []
        for stmt in body:
            site = self.layout.sites[stmt]
            if isinstance(stmt, With):
                inner = self.layout.sites[stmt.body[0]] if stmt.body else site
                block = self.blocks[role.cta]
                if role.first in inner.members and self.layout.inside(stmt.mesh, block):
                    out += self._lower(stmt.body, role)
            elif isinstance(stmt, For):
                loop = self._loop(stmt, role)
                out += [loop] if loop is not None else []
            elif isinstance(stmt, When):
                when = self._when(stmt, role)
                out += [when] if when is not None else []
            elif isinstance(stmt, Advance):
                out.append(self._advance(stmt))
            elif isinstance(stmt, Sync):
                op = barriers.lower(self, stmt, site, role)
                out += [op] if op is not None else []
            else:
                op = issues.lower(self, stmt, effects(stmt), site, role)
                out += [op] if op is not None else []
        return tuple(out)

    def _loop(self, loop: For, role: Role) -> Op | None:
        body = self._lower(loop.body, role)
        if not body:
            return None
        start, stop, step = self.compiler.fns((loop.start, loop.stop, loop.step))
        place, cut = self.compiler.at(loop.var), self._cut(loop, role)

        def process(me: Knowledge) -> Process:
            env = me.env
            values = range(start(env), stop(env), step(env))
            for value in iterations(values, cut, env):
                env[place] = value
                self.count(len(body))
                for op in body:
                    blocking = op(me)
                    if blocking is not None:
                        yield from blocking

        return process

    def _cut(self, loop: For, role: Role) -> Cut | None:
        """Blocks that are followed together leave out the same iterations."""
        found = [mine.get(loop) for mine in self.cuts]
        periods = {None if c is None else (c.period, c.least) for c in found}
        return found[role.cta] if len(periods) == 1 else None

    def _when(self, when: When, role: Role) -> Op | None:
        body, test = self._lower(when.body, role), self.compiler.fn(when.test)
        if not body:
            return None

        def op(me: Knowledge) -> Process | None:
            return self._run(body, me) if test(me.env) > 0 else None

        return op

    def _advance(self, stmt: Advance) -> Op:
        by, place = self.compiler.fn(stmt.by), self.compiler.at(stmt.counter)

        def op(me: Knowledge) -> None:
            me.env[place] += by(me.env)

        return op

    def count(self, events: int) -> None:
        self.events += events
        if self.events > EVENTS:
            raise TooLarge

    def reached(self, role: Role, over: Sequence[Axis], site: Site) -> list[int]:
        """The blocks along ``over`` from the one of ``role``, by number; of an access to one
        peer's memory, that one."""
        if not over:
            return [role.cta]
        found = targets(self.blocks, role.cta, over)
        peer = site.stmt.attrs.get("peer") if isinstance(site.stmt, Issue) else None
        if found is not None and peer is not None:
            found = [found[peer]] if 0 <= peer < len(found) else None
        if found is None:
            self.findings.add("sync-participants", site.place, None,
                              "it reaches a block that the cluster has not",
                              "reach along the axes of the cluster's mesh")  # fmt: skip
            return [role.cta]
        return found

    def handed(self, clock: Clock) -> Clock:
        """What is passed on without making anything visible that was written."""
        return [n if dim in self.kept else 0 for dim, n in enumerate(clock)]

    def reaches(self, cta: int, site: Site, me: Knowledge, dim: int, time: int) -> None:
        """A role has touched the memory of block ``cta``, which must not end before."""
        if cta != me.role.cta:
            self.remote[cta, site, me.role] = Remote(dim, time)

    def meeting(self, key: object, site: Site, threads: int) -> Meeting:
        found = self.meetings.setdefault(key, Meeting())
        if not found.arrived:
            found.threads, found.by, found.clock = threads, site, [0] * self.size
        return found


__all__ = ["Machine", "Op", "Process", "TooLarge"]
