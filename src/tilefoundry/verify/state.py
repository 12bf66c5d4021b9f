"""What is known: clocks of roles, barriers and their phases.

A clock is a list of numbers, one per *dimension*; knowing ``clock[d] = n`` is knowing that
everything numbered up to n in dimension d has happened. Each role has one dimension for its
plain writes and one for its plain reads, for those among them that a proxy fence follows, for
its cp.async, for wgmma groups, for control (the waits it has passed), for bulk stores of its
elected thread; each mbarrier has two, numbered by phases: what they brought, and that they
are over.

What the *threads* of a role know of one another is kept by level: 0 a thread of itself, 1 of
its warp, 2 of its warpgroup, 3 of the role. What comes from elsewhere all threads know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tilefoundry.tir.program import Barrier, Buffer
from tilefoundry.verify.numbers import Env
from tilefoundry.verify.roles import WARP, WARPGROUP, Role, Site
from tilefoundry.verify.touch import Box

Clock: TypeAlias = list[int]
Slot: TypeAlias = tuple[Buffer, int]
Ready: TypeAlias = Callable[[], bool]

PLAIN, FENCED, COPIED, COPIED_FENCED, WGMMA, CONTROL, READ, READ_FENCED = range(8)
OWN = 8
BULK_READ, BULK_DONE, INIT = 8, 9, 10
DIMS = 11
"""Dimensions of one role; those from ``OWN`` on are known to its elected thread first."""


class TooLarge(Exception):
    """The run takes more work than is done for one kernel."""


def join(into: Clock, other: Clock) -> None:
    into[:] = map(max, into, other)


@dataclass(eq=False)
class Groups:
    """Asynchronous operations of one kind: the open group, and the ends of closed ones."""

    issued: int = 0
    open: bool = False
    ends: list[int] = field(default_factory=list[int])

    def issue(self) -> int:
        self.issued += 1
        self.open = True
        return self.issued

    def commit(self) -> None:
        # an empty group counts as one too
        self.ends.append(self.issued)
        self.open = False

    def done(self, pending: int) -> int:
        """The last operation that is complete when ``pending`` groups may be in flight."""
        last = len(self.ends) - pending
        return self.ends[last - 1] if last > 0 else 0


class Knowledge:
    """What one role knows, and its running state."""

    def __init__(self, role: Role, base: int, size: int, env: Env) -> None:
        self.role, self.base, self.env = role, base, env
        self.common: Clock = [0] * size
        self.levels: list[list[int]] = [[0] * OWN for _ in range(4)]
        self.elect = [0] * (DIMS - OWN)
        self.top = 0 if len(role.threads) == 1 else 1 if role.fits(WARP) else (
            2 if role.fits(WARPGROUP) else 3
        )  # fmt: skip
        self.time = 0
        self.wgmma, self.copies = Groups(), Groups()
        self.wgmma_control: list[tuple[int, int]] = []
        self.bulk: dict[int, Groups] = {}
        self.fence = 0
        self.fence_seen: dict[int, int] = {}
        self.wgmma_site: Site | None = None
        self.last_async: Site | None = None
        self.touched: dict[Slot, dict[Box, int]] = {}
        self.flying: dict[Slot, dict[Box, int]] = {}
        self.filled: dict[Slot, set[Box]] = {}
        self.seen: dict[int, int] = {}
        """Phases of a barrier that were complete, provably, when the role last arrived on it."""
        self.waits: dict[Site, list[Clock | None]] = {}

    def tick(self) -> int:
        self.time += 1
        return self.time

    def at(self, level: int) -> list[int]:
        return self.levels[min(level, self.top)]

    def pass_control(self) -> int:
        """A wait or an arrival: the lanes of a warp go through it together."""
        now = self.tick()
        self.levels[0][CONTROL] = self.levels[1][CONTROL] = now
        return now

    def lift(self, level: int) -> None:
        """The threads of each group of ``level`` have met."""
        for up in range(1, level + 1):
            self.levels[up][:] = self.levels[0]
        if level >= self.top:
            self.common[self.base + OWN : self.base + DIMS] = self.elect

    def publish(self, level: int, elected: bool) -> Clock:
        """What is handed over by one thread of each group of ``level``."""
        out = self.common[:]
        out[self.base : self.base + OWN] = self.at(level)
        if elected:
            out[self.base + OWN : self.base + DIMS] = self.elect
        return out

    def learn(self, clock: Clock) -> None:
        """All threads of the role have observed ``clock``."""
        join(self.common, clock)
        own = clock[self.base : self.base + OWN]
        for level in self.levels:
            level[:] = map(max, level, own)
        self.elect[:] = map(max, self.elect, clock[self.base + OWN : self.base + DIMS])

    def meet(self, clock: Clock) -> None:
        """All threads of the role have met, and observed ``clock``."""
        self.lift(3)
        self.learn(clock)


HANDED = (WGMMA, CONTROL, READ, READ_FENCED, BULK_READ)
"""Dimensions of reads, and of how far a role has come."""


@dataclass(eq=False)
class Arrival:
    """A contribution to a phase: who, when, and whether the same threads come each time."""

    role: Role
    time: int
    group: tuple[object, ...]


@dataclass(eq=False)
class Phase:
    """One mbarrier: completed phases, the current one, what completed ones hand over."""

    barrier: Barrier
    slot: int
    dim: int
    cta: int = 0
    done: int = 0
    arrived: int = 0
    expected: int = 0
    issued: int = 0
    ready: bool = False
    had_bytes: bool = False
    last_had_bytes: bool = False
    clock: Clock = field(default_factory=list[int])
    clocks: list[Clock] = field(default_factory=list[Clock])
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    last: list[Arrival] = field(default_factory=list[Arrival])
    waiting: dict[Role, tuple[int, int, Site]] = field(
        default_factory=dict[Role, tuple[int, int, Site]]
    )
    by: Site | None = None
    init: tuple[int, int] = (0, 0)

    @property
    def control(self) -> int:
        """The dimension of its completed phases as such: to know them is not to see the bytes
        that completed them, but enough to write over these."""
        return self.dim + 1

    @property
    def name(self) -> str:
        return f"{self.barrier.name}[{self.slot}]" if self.barrier.slots > 1 else self.barrier.name


@dataclass(eq=False)
class Meeting:
    """A barrier by thread count: named, warp, cluster, grid, collective."""

    threads: int = 0
    arrived: int = 0
    generation: int = 0
    clock: Clock = field(default_factory=list[int])
    last: Clock = field(default_factory=list[int])
    by: Site | None = None


__all__ = [
    "BULK_DONE",
    "BULK_READ",
    "CONTROL",
    "COPIED",
    "COPIED_FENCED",
    "DIMS",
    "FENCED",
    "HANDED",
    "INIT",
    "OWN",
    "PLAIN",
    "READ",
    "READ_FENCED",
    "WGMMA",
    "Arrival",
    "Clock",
    "Groups",
    "Knowledge",
    "Meeting",
    "Phase",
    "Ready",
    "TooLarge",
    "join",
]
