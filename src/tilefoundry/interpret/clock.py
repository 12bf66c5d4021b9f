"""What a thread knows to have happened: vector clocks by thread, plus finished engine work.

An access of thread p in epoch e happened before a thread that holds ``clock`` if
``clock.seen[p] >= e``; before an access in the asynchronous proxy only if
``clock.fenced[p] >= e`` (PTX ISA, "Proxies": a proxy fence stands between). Work of an
asynchronous engine is one bit of ``clock.done``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Clock:
    """Epochs by global thread id, those behind a proxy fence, finished engine work as bits."""

    seen: Any
    fenced: Any
    done: int = 0

    def join(self, other: Clock) -> Clock:
        return Clock(
            np.maximum(self.seen, other.seen),
            np.maximum(self.fenced, other.fenced),
            self.done | other.done,
        )

    def meet(self, other: Clock) -> Clock:
        """What both know."""
        return Clock(
            np.minimum(self.seen, other.seen),
            np.minimum(self.fenced, other.fenced),
            self.done & other.done,
        )

    def plus(self, done: int) -> Clock:
        return self if self.done & done == done else Clock(self.seen, self.fenced, self.done | done)


def nothing(threads: int) -> Clock:
    """The clock of a thread before its first statement."""
    zero = np.zeros(threads, np.int32)
    return Clock(zero, zero)


class Knowledge:
    """What the lanes of one warp know: lanes in one class know the same.

    ``base`` is the global id of lane 0; ``epoch`` numbers the stretches between two
    releases of any lane.
    """

    def __init__(self, base: int, lanes: int, start: Clock) -> None:
        self.base = base
        self.epoch = 1
        self.fences = np.zeros(lanes, np.int32)
        self.classes: list[tuple[int, Clock]] = [((1 << lanes) - 1, start)]

    def of(self, lanes: int) -> list[tuple[int, Clock]]:
        """The classes that share lanes with the set ``lanes``, cut to it."""
        return [(mask & lanes, clock) for mask, clock in self.classes if mask & lanes]

    def lane(self, lane: int) -> Clock:
        """All that one lane knows, its own accesses included."""
        (_, clock), *_ = self.of(1 << lane)
        seen, fenced = clock.seen.copy(), clock.fenced.copy()
        seen[self.base + lane] = self.epoch
        fenced[self.base + lane] = self.fences[lane]
        return Clock(seen, fenced, clock.done)

    def together(self, lanes: int) -> Clock:
        """What the lanes know between them, their own accesses included."""
        clock = reduce(Clock.join, (c for _, c in self.of(lanes)))
        ids = self.base + members(lanes)
        seen, fenced = clock.seen.copy(), clock.fenced.copy()
        seen[ids] = self.epoch
        fenced[ids] = self.fences[members(lanes)]
        return Clock(seen, fenced, clock.done)

    def common(self, lanes: int) -> Clock:
        """What every one of the lanes knows, of itself only what the others know too."""
        return reduce(Clock.meet, (c for _, c in self.of(lanes)))

    def release(self, lanes: int) -> Clock:
        """What the lanes hand over; what they do from here on is later."""
        if lanes & (lanes - 1):
            out = self.together(lanes)
        else:
            out = self.lane(lanes.bit_length() - 1)
        self.epoch += 1
        return out

    def acquire(self, lanes: int, clock: Clock) -> None:
        out: list[tuple[int, Clock]] = []
        for mask, own in self.classes:
            if mask & ~lanes:
                out.append((mask & ~lanes, own))
            if mask & lanes:
                out.append((mask & lanes, own.join(clock)))
        self.classes = out

    def finish(self, lanes: int, done: int) -> None:
        """The lanes know that engine work ``done`` has finished."""
        if all(clock.done & done == done for _, clock in self.of(lanes)):
            return
        out: list[tuple[int, Clock]] = []
        for mask, own in self.classes:
            if mask & ~lanes:
                out.append((mask & ~lanes, own))
            if mask & lanes:
                out.append((mask & lanes, own.plus(done)))
        self.classes = out

    def sync(self, lanes: int, clock: Clock | None = None) -> None:
        """The lanes meet: each knows what any of them knew and did (and ``clock``)."""
        shared = self.together(lanes)
        if clock is not None:
            shared = shared.join(clock)
        rest = [(mask & ~lanes, own) for mask, own in self.classes if mask & ~lanes]
        self.classes = [*rest, (lanes, shared)]
        self.epoch += 1

    def fence(self, lanes: int) -> None:
        """A proxy fence: accesses so far may be followed by asynchronous ones."""
        self.fences[members(lanes)] = self.epoch
        self.epoch += 1


_MEMBERS: dict[int, Any] = {}


def members(lanes: int) -> Any:
    """The lanes of a set, ascending."""
    found = _MEMBERS.get(lanes)
    if found is None:
        found = np.array([n for n in range(lanes.bit_length()) if lanes >> n & 1], np.int64)
        _MEMBERS[lanes] = found
    return found
