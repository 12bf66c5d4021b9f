"""One side of a measurement on an accelerator: its own clock, held to two others.

Times are between two events on the device, around calls that were queued while a kernel of ours
held it. The wall clock of the process around all of it, and the command's own around the request,
must account for the same time: work on another stream that goes on after the second event is in
both of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tilefoundry.judge.measure.clock import Batch, Overhead, Reading, hold, overhead
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.player import EMPTY, WARM_SECONDS, Player
from tilefoundry.judge.measure.statistics import calls_for, steady
from tilefoundry.judge.process import Child
from tilefoundry.judge.run import Runner
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.weights import Weights

BATCH_SECONDS = 5e-3
MOST_SETS, SETS_BYTES = 256, 24 << 30
"""Sets of inputs that are held, and the memory that they and their results may take."""
MOST_BEYOND = 1 << 16
BEYOND = 3
"""Times the device's second cache that go by before a set is used again: data is cold then."""
LEAST_HELD, MOST_HELD = 1e-3, 50e-3
"""Seconds for which the device is held while calls are queued."""
MOST_CALLS = 256
"""Calls of one batch: the driver queues about a thousand launches."""
LEAD = 1
EMPTY_CALLS = 129
"""Calls of the larger empty batches: near to what is timed, since what a call costs adds up."""
ALLOWED_SECONDS = 4e-4
"""What may be unaccounted for in a batch: two processes, a driver and a device take part."""


@dataclass(frozen=True)
class Told:
    """What one batch said: seconds on the device, of the process's wall clock, of the host."""

    device: float
    wall: float
    host: float
    held: float
    starved: bool


def sets_of(given: int, results: int, cache: int) -> tuple[int, int]:
    """Sets that are held of inputs of ``given`` bytes, and how many of them lie in half of a
    cache, with their results."""
    each = max(1, given + results)
    fits = max(2, SETS_BYTES // each)
    wanted = max(MOST_SETS, -(-BEYOND * cache // max(1, given)))
    return min(wanted, fits, MOST_BEYOND), max(1, min(MOST_SETS, cache // 2 // each))


class DevicePlayer(Player):
    """A child that is timed on an accelerator."""

    def __init__(
        self,
        who: str,
        child: Child,
        threads: int,
        device: str,
        clock: Callable[[int], Reading],
    ) -> None:
        self.device = device
        self.held = LEAST_HELD
        self.told: dict[str, list[Told]] = {"cold": [], "warm": []}
        self.sets = self.near = 1
        self.next = 0
        super().__init__(who, child, [], threads, lambda: None, clock)

    def _overhead(self, evict: Callable[[], None]) -> dict[str, Overhead]:
        self._held("idle_device", "timing nothing", changes=[(0, 0, "00")])
        single = [self._nothing(1) for _ in range(EMPTY)]
        many = [self._nothing(EMPTY_CALLS) for _ in range(EMPTY)]
        found = overhead(single, many)
        return {"cold": found, "warm": found}

    def _nothing(self, calls: int) -> Batch:
        taken, told, _ = self._held("idle_device", "timing nothing", changes=[(0, 0, "00")] * calls)
        return Batch((told.device / calls,) * calls, taken)

    def _held(
        self, what: str, doing: str, **request: Any
    ) -> tuple[Reading, Told, Mapping[str, Any]]:
        """A request behind a held device: the command's clock without the time it was held."""
        held = self.held
        taken, answer = self._asked(what, doing, held=round(held * 1e9), **request)
        if "form" in answer:
            return taken, Told(0, 0, 0, held, False), answer
        names = ("ns", "wall", "host")
        if not all(isinstance(answer.get(n), int) and answer[n] >= 0 for n in names):
            self.child.died("it sent times of no known form")
        device, wall, host = (answer[n] / 1e9 for n in names)
        told = Told(device, wall, host, held, answer.get("starved") is True)
        return Reading(taken.wall - held, None), told, answer

    def prepare(
        self,
        signature: Signature,
        weights: Weights,
        device: str,
        folder: Path,
        fresh: Fresh,
        results: int,
    ) -> Runner:
        runner = super().prepare(signature, weights, device, folder, fresh, results)
        self.results = results
        return runner

    def stage(self, inputs: Mapping[str, RawTensor], sets: int = 1) -> None:
        """Sets of inputs: enough to go by the second cache, and as many as lie in half of it."""
        cache = self.l2 if isinstance(self.l2, int) and self.l2 > 0 else 64 << 20
        given = sum(t.nbytes for t in inputs.values())
        self.sets, self.near = sets_of(given, self.results, cache)
        super().stage(inputs, self.sets)

    def batch(self, calls: int, data: str) -> Batch:
        """One call on each of ``calls`` sets; each call's time is the mean of the batch."""
        assert self.runner is not None and self.fresh is not None
        if data == "warm":
            sets = list(range(min(calls, self.near)))
        else:
            sets = [(self.next + n) % self.sets for n in range(min(calls, self.sets))]
            self.next = (sets[-1] + 1) % self.sets
        changes = self.fresh.changes(sets)
        self.child.ask("release", "giving up its results")
        doing = f"timing {self.runner.signature.func}"
        taken, told, answer = self._held("timed_device", doing, sets=sets, changes=changes)
        self.runner.hold_form(answer, list(self.fresh.types))
        made = Batch((told.device / len(sets),) * len(sets), taken)
        self.batches[data].append(made)
        self.told[data].append(told)
        return made

    def _several(self, calls: int) -> tuple[float, ...]:
        """Batches on the sets that lie in the cache, those that lead left out."""
        found: list[float] = []
        for number in range(LEAD + -(-calls // self.near)):
            made = self.batch(self.near, "warm")
            if number >= LEAD:
                found.append(made.times[0])
        return tuple(found)

    def warm_up(self) -> None:
        """Call until figures agree; settle how many calls make a batch, and how long the device
        is held, so that the host is not waited for."""
        figures: list[float] = []
        end = time.monotonic() + WARM_SECONDS
        while not self.is_steady and (not figures or time.monotonic() < end):
            figures.append(median(self._several(self.calls)))
            self.warmup += self.near + self.calls
            host = self.told["warm"][-1].host / self.near
            self.calls = calls_for(BATCH_SECONDS, max(figures[-1], host / 4),
                                   min(self.sets, MOST_CALLS))  # fmt: skip
            most = max(self.calls, self.near)
            self.held = min(MOST_HELD, max(LEAST_HELD, 2 * host * most + LEAST_HELD))
            self.is_steady = steady(figures)
        self.batch(self.calls, "cold")
        for data in self.batches:
            self.batches[data].clear()
            self.told[data].clear()

    def time_cold(self) -> None:
        """Calls on data that no cache holds: the sets go round."""
        self.cold.append(self.batch(self.calls, "cold").times[0])

    def hold_clocks(self, threads: int) -> None:
        """Refuse times that leave out what the command's clock shows; threads are not counted,
        since the device is what works."""
        for data, batches in self.batches.items():
            who = f"the {self.who}"
            hold(who, batches, self.cost[data], threads + 1, ALLOWED_SECONDS)

    def busy(self, data: str) -> list[float]:
        """Not known: processors do not compute here."""
        return []

    def clocks(self, data: str) -> dict[str, object]:
        """The three clocks over the same batches: medians in seconds a batch, and how many of
        the batches the device ran out of queued calls in."""
        told = self.told[data]
        usual = [self.cost[data].of(len(b.times)).wall for b in self.batches[data]]
        return {
            "device": median(t.device for t in told),
            "process": median(t.wall - t.held for t in told),
            "command": median(
                b.taken.wall - u for b, u in zip(self.batches[data], usual, strict=True)
            ),
            "host": median(t.host for t in told),
            "starved": sum(t.starved for t in told),
            "batches": len(told),
        }
