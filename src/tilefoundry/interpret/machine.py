"""One execution of a kernel: its warps, engines, memories and barriers, under a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilefoundry.interpret.barrier import MBarrier, Meeting
from tilefoundry.interpret.clock import nothing
from tilefoundry.interpret.engine import Work
from tilefoundry.interpret.in_step import InStep
from tilefoundry.interpret.kernel import Kernel
from tilefoundry.interpret.log import Log
from tilefoundry.interpret.memory import Memory
from tilefoundry.interpret.report import Report, Reports, Stop, describe
from tilefoundry.interpret.schedule import Schedule
from tilefoundry.interpret.warp import Warp
from tilefoundry.tir.program import Barrier, Buffer


class Machine:
    """The state that warps and engines share."""

    def __init__(self, kernel: Kernel, tensors: dict[Buffer, torch.Tensor], schedule: Schedule,
                 reports: Reports, max_steps: int) -> None:  # fmt: skip
        self.kernel, self.schedule, self.reports = kernel, schedule, reports
        self.units = kernel.units
        self.max_steps = max_steps
        self.memory = Memory(kernel.func, kernel.places, tensors, reports)
        self.log = (InStep if self.units.in_step else Log)(kernel.places, reports)
        self.start = nothing(self.units.ctas * self.units.threads)
        self.mbarriers: dict[tuple[int, Barrier, int], MBarrier] = {}
        self.meetings: dict[Any, Meeting] = {}
        self.works = 0
        self.flying: list[Work] = []
        self.queues: dict[tuple[int, int], list[Work]] = {}
        """Unfinished wgmmas of each warpgroup, in order."""
        self.gathering: dict[tuple[int, int, int], list[Any]] = {}
        self.remote: dict[tuple[int, Any, int], int] = {}
        """The last that a thread did in another CTA's memory: by that CTA, statement and
        thread, the epoch that must be known there before it ends."""
        self.triggers: list[tuple[list[Work], Callable[[], None]]] = []
        self.moved = False
        self.warps = [
            Warp(self, cta, n) for cta in range(self.units.ctas) for n in range(self.units.warps)
        ]

    def mbarrier(self, cta: int, barrier: Barrier, slot: int) -> MBarrier:
        key = (cta, barrier, slot)
        if key not in self.mbarriers:
            if not 0 <= slot < barrier.slots:
                says = f"slot {slot} of barrier {barrier.name}, which has {barrier.slots}"
                self.reports.add(Report("bounds", says, buffer=barrier.name))
                raise Stop
            self.mbarriers[key] = MBarrier(barrier, slot, cta, self.reports, self.start)
        return self.mbarriers[key]

    def meeting(self, key: Any, need: int) -> Meeting:
        if key not in self.meetings:
            self.meetings[key] = Meeting(self.start, need)
        return self.meetings[key]

    def work(self, kind: str, issue: Any, cta: int) -> Work:
        out = Work(self.works, kind, issue, cta)
        self.works += 1
        return out

    def launch(self, work: Work) -> None:
        """The engine has it from here on."""
        work.total = len(work.steps)
        if work.kind == "wgmma":
            return  # its queue decides when it may go
        if self.schedule.eager:
            while work.steps:
                self.advance(work)
        else:
            self.flying.append(work)

    def advance(self, work: Work) -> None:
        """The engine takes the next step of a work."""
        work.steps.pop(0)()
        self.moved = True
        if work.steps:
            return
        if work in self.flying:
            self.flying.remove(work)
        for trigger in [t for t in self.triggers if all(w.finished for w in t[0])]:
            self.triggers.remove(trigger)
            trigger[1]()

    def queue(self, key: tuple[int, int], work: Work) -> None:
        """A wgmma of one warpgroup: they retire in the order of their issue."""
        line = self.queues.setdefault(key, [])
        line.append(work)
        self.launch(work)
        work.steps.append(lambda: self._retired(key))
        if line[0] is work:
            self._next(work)

    def _retired(self, key: tuple[int, int]) -> None:
        line = self.queues[key]
        line.pop(0)
        if line:
            self._next(line[0])

    def _next(self, work: Work) -> None:
        if self.schedule.eager:
            while work.steps:
                self.advance(work)
        else:
            self.flying.append(work)

    def run(self) -> None:
        """Runs to the end, a deadlock, or the limit of findings or steps."""
        self.memory.layout()
        ready: list[Warp] = list(self.warps)
        self.schedule.every = self.warps
        blocked: list[Warp] = []
        for _ in range(self.max_steps):
            if self.moved and blocked:
                self.moved = False
                woken = [w for w in blocked if w.blocked is None or w.blocked()]
                if woken:
                    for warp in woken:
                        warp.ready = True
                    blocked = [w for w in blocked if not w.ready]
                    ready += woken
            if not ready and not self.flying:
                break
            pick = self.schedule.pick(ready, self.flying)
            if isinstance(pick, Work):
                self.advance(pick)
                continue
            state = pick.step()
            if state is Warp.ENDED or pick.blocked is not None:
                ready.remove(pick)
                pick.ready = False
            if state is not Warp.ENDED and pick.blocked is not None:
                blocked.append(pick)
                self.moved = True
        else:
            says = f"the kernel does not end within {self.max_steps} steps"
            self.reports.add(Report("deadlock", says))
            return
        if blocked:
            self._deadlock(blocked)
        else:
            self._close()

    def _stuck_bytes(self) -> bool:
        found = [b for b in self.mbarriers.values() if b.stuck_on_bytes()]
        for barrier in found:
            barrier.mismatch()
        return bool(found)

    def _deadlock(self, blocked: list[Warp]) -> None:
        self._stuck_bytes()
        seen: set[Any] = set()
        for warp in blocked:
            stmt, says, missing = warp.waiting
            if stmt in seen:
                continue
            seen.add(stmt)
            access = warp.access(stmt)
            report = Report("deadlock", f"{access} waits for ever: {says}", missing(), access)
            self.reports.add(report, (stmt,))

    def _close(self) -> None:
        """What must hold at the end of a kernel."""
        self._stuck_bytes()
        for key, meeting in self.meetings.items():
            if meeting.came:
                says = (
                    f"{meeting.came} arrivals are left over at {key[0]} {key[-1]} of CTA {key[1]}"
                )
                self.reports.add(Report("barrier-misuse", says), key)
        for warp in self.warps:
            warp.close()
        self._left()
        self.memory.close()

    def reaches(self, home: int, stmt: Any, thread: int, epoch: int) -> None:
        """A thread (by its global number) has touched the memory of CTA ``home``."""
        if thread // self.units.threads != home:
            self.remote[home, stmt, thread] = epoch

    def _left(self) -> None:
        """Shared memory is gone once its CTA is: some warp of it must know that all that
        others did there is over."""
        clocks: dict[int, list[Any]] = {}
        for warp in self.warps:
            clocks.setdefault(warp.cta, []).extend(c.seen for _, c in warp.known.classes)
        for (home, stmt, thread), epoch in self.remote.items():
            if not any(seen[thread] >= epoch for seen in clocks[home]):
                says = f"CTA {home} may have ended when {describe(stmt)} of CTA "
                says += f"{thread // self.units.threads} reaches its shared memory"
                missing = "a barrier of the cluster at the end"
                self.reports.add(Report("not-drained", says, missing), (stmt, "left"))
