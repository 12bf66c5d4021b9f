"""One warp: walks the program in order, with its own loop variables and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilefoundry.interpret import issue as issues
from tilefoundry.interpret import sync as syncs
from tilefoundry.interpret.clock import Knowledge, members
from tilefoundry.interpret.engine import Work
from tilefoundry.interpret.place import value
from tilefoundry.interpret.plan import Team
from tilefoundry.interpret.report import Access, Report, describe, ranges
from tilefoundry.ir.expr import Dim, Expr, Sym
from tilefoundry.ir.mesh import Coord, Mesh
from tilefoundry.tir.program import (
    Advance,
    Barrier,
    Buffer,
    Counter,
    For,
    Issue,
    Stmt,
    Sync,
    When,
    With,
)

if TYPE_CHECKING:
    from tilefoundry.interpret.machine import Machine

Ready = Callable[[], bool]
Steps = Iterator[Ready | None]
"""A step ends with None, or with what must hold before the next one."""


class Warp:
    """One warp of one CTA. Lanes are sets of bits; symbols that differ among lanes are
    arrays over all lanes of the warp."""

    ENDED = object()

    def __init__(self, machine: Machine, cta: int, index: int) -> None:
        self.machine, self.kernel = machine, machine.kernel
        self.cta, self.index = cta, index
        units = machine.units
        self.number = cta * units.warps + index
        self.first = index * units.width
        self.size = min(units.width, units.threads - self.first)
        self.ids = self.first + np.arange(self.size)
        self.base = cta * units.threads + self.first
        self.known = Knowledge(self.base, self.size, machine.start)
        self.env: dict[Sym, Any] = {}
        self.trail: list[Any] = []
        """Values of the loop variables around: tells instances of a statement apart."""
        self.blocked: Ready | None = None
        self.ready = True
        """It can move: it neither waits nor has ended."""
        self.waiting: tuple[Sync | Issue | None, str, Callable[[], str]] = (None, "", str)
        # registers touched since the last wgmma_fence; None: there was none yet
        self.touched: set[Buffer] | None = None
        self.serial = 0
        self.flight: list[Work] = []
        """wgmmas that may use this warp's registers."""
        self.open: dict[str, list[Work]] = {"wgmma": [], "bulk": [], "async": []}
        self.groups: dict[str, list[list[Work]]] = {"wgmma": [], "bulk": [], "async": []}
        self.stored: list[tuple[Work, int]] = []
        self.loaded: list[tuple[Work, int]] = []
        """Loads that were issued, with the CTAs that they go to."""
        self.inits: list[tuple[Barrier, int]] = []
        self.rounds: dict[Any, int] = {}
        self.came: int | None = None
        """The round of the cluster's barrier that it has arrived in, and not waited for."""
        every = (1 << self.size) - 1
        self._steps = self.body(machine.kernel.func.body, every, machine.kernel.outside)

    def step(self) -> Any:
        """Takes one step; ``blocked`` says what the next one waits for."""
        self.blocked = None
        try:
            self.blocked = next(self._steps)
        except StopIteration:
            return Warp.ENDED
        if self.blocked is not None and self.blocked():
            self.blocked = None
        return None

    # Values

    def threads(self, lanes: int) -> Any:
        """Ids in the CTA of a set of lanes."""
        return self.first + members(lanes)

    def symbol(self, sym: Sym) -> Any:
        """An integer, or an array over the warp's lanes."""
        found = self.env.get(sym)
        if found is None:
            if isinstance(sym, Counter):
                return 0
            assert isinstance(sym, Coord) and sym.axis is not None, sym
            found = self.machine.units.coordinate(sym.axis, self.cta, self.ids)
            self.env[sym] = found
        return found

    def value(self, x: Dim | float, lanes: int) -> Any:
        """The integer that ``x`` is for all the lanes, or an array (lanes, 1)."""
        if not isinstance(x, Expr):
            return x
        env: dict[Sym, Any] = {}
        arrays = False
        for sym in self.kernel.symbols(x):
            found = self.symbol(sym)
            if isinstance(found, np.ndarray):
                arrays = True
                found = found[members(lanes)][:, None]
            env[sym] = found
        out = value(x, env)
        if not arrays or not isinstance(out, np.ndarray):
            return int(out)
        first = int(out.flat[0])
        return first if (out == first).all() else out

    def uniform(self, x: Dim, lanes: int, stmt: Stmt) -> int:
        found = self.value(x, lanes)
        if isinstance(found, np.ndarray):
            says = f"{describe(stmt)}: {x} differs among {ranges(self.threads(lanes).tolist())}"
            self.report("barrier-misuse", says, stmt)
            return int(found.flat[0])
        return found

    def team(self, lanes: int, mesh: Mesh, syms: tuple[Sym, ...]) -> tuple[Any, Team]:
        """(key of the values, who executes) for an issue whose places depend on ``syms``."""
        env: dict[Sym, Any] = {}
        key: list[Any] = []
        for sym in syms:
            found = self.symbol(sym)
            if isinstance(found, np.ndarray):
                mine = found[members(lanes)]
                if (mine == mine[0]).all():
                    found = int(mine[0])
                else:
                    key.append(mine.tobytes())
                    env[sym] = mine[:, None]
                    continue
            env[sym] = found
            key.append(found)
        return tuple(key), Team(self.cta, self.threads(lanes), mesh, env)

    # Findings

    def who(self, lanes: int) -> str:
        return f"{ranges(self.threads(lanes).tolist())} of CTA {self.cta}"

    def access(self, stmt: Any) -> Access:
        every = (1 << self.size) - 1
        return Access(stmt, self.who(every), getattr(stmt, "span", None))

    def report(self, kind: str, says: str, stmt: Any, missing: str = "", buffer: str = "") -> None:
        report = Report(kind, says, missing, second=self.access(stmt), buffer=buffer)
        self.machine.reports.add(report, (stmt, says.split(" of CTA")[0]))

    def wait(self, ready: Ready, stmt: Sync | Issue, says: str,
             missing: Callable[[], str]) -> Iterator[Ready]:  # fmt: skip
        """Goes on once ``ready``; the words are for a deadlock."""
        self.waiting = (stmt, says, missing)
        if not ready():
            yield ready

    # Statements

    def body(self, stmts: tuple[Stmt, ...], lanes: int, mesh: Mesh) -> Steps:
        for stmt in stmts:
            match stmt:
                case Issue():
                    yield from issues.execute(self, stmt, lanes, mesh)
                    yield None
                case Sync():
                    yield from syncs.execute(self, stmt, lanes, mesh)
                    yield None
                case Advance():
                    self.advance(stmt, lanes)
                case With():
                    mine = self.machine.units.lanes(stmt.mesh, self.cta)[self.index] & lanes
                    if mine:
                        yield from self.body(stmt.body, mine, stmt.mesh)
                case When():
                    chosen = self.chosen(stmt, lanes)
                    if chosen:
                        yield from self.body(stmt.body, chosen, mesh)
                case For():
                    if self.kernel.busy(stmt, self.cta, mesh)[self.index]:
                        yield from self.loop(stmt, lanes, mesh)

    def chosen(self, stmt: When, lanes: int) -> int:
        test = self.value(stmt.test, lanes)
        if not isinstance(test, np.ndarray):
            return lanes if test > 0 else 0
        return _bits(members(lanes)[(test > 0).ravel()])

    def loop(self, stmt: For, lanes: int, mesh: Mesh) -> Steps:
        start, stop, step = (self.value(x, lanes) for x in (stmt.start, stmt.stop, stmt.step))
        self.trail.append(None)
        if not any(isinstance(x, np.ndarray) for x in (start, stop, step)):
            for at in range(start, stop, step):
                self.env[stmt.var] = at
                self.trail[-1] = at
                yield from self.body(stmt.body, lanes, mesh)
        else:
            mine = members(lanes)
            full = [np.zeros(self.size, np.int64) for _ in range(3)]
            for array, given in zip(full, (start, stop, step), strict=True):
                array[mine] = np.ravel(given) if isinstance(given, np.ndarray) else given
            at, end, by = full
            turn = 0
            while True:
                on = mine[(at < end)[mine]]
                if not len(on):
                    break
                self.env[stmt.var] = at
                self.trail[-1] = ("turn", turn)
                yield from self.body(stmt.body, _bits(on), mesh)
                at, turn = at + by, turn + 1
        self.trail.pop()
        self.env.pop(stmt.var, None)

    def advance(self, stmt: Advance, lanes: int) -> None:
        by = self.value(stmt.by, lanes)
        now = self.env.get(stmt.counter, 0)
        every = (1 << self.size) - 1
        if lanes == every and not isinstance(by, np.ndarray):
            self.env[stmt.counter] = now + by
            return
        full = np.zeros(self.size, np.int64) + now
        full[members(lanes)] += np.ravel(by) if isinstance(by, np.ndarray) else by
        self.env[stmt.counter] = full

    # Order

    def close(self) -> None:
        """At the end, the stores that this warp issued are known to it to be complete, and its
        loads to some warp of the CTA: shared memory is gone once the CTA is."""
        for work, home in self.loaded:
            ours = [w for w in self.machine.warps if w.cta == home]
            if not any(c.done & work.write_bit for w in ours for _, c in w.known.classes):
                says = f"the kernel ends while {describe(work.issue)} may not have landed"
                self.report("not-drained", says, work.issue, "a wait for its barrier's phase")
        for work, lane in self.stored:
            (_, clock), *_ = self.known.of(1 << lane)
            if not clock.done & work.write_bit:
                says = f"the kernel ends while {describe(work.issue)} may not have written"
                self.report(
                    "not-drained", says, work.issue, "bulk_wait of all groups, not read only"
                )


def _bits(lanes: Any) -> int:
    out = 0
    for lane in lanes.tolist():
        out |= 1 << lane
    return out
