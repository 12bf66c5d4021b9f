"""One side of a measurement on an accelerator: its own clock, held to two others.

Times are between two events on the device, around calls that were queued while a kernel of ours
held it. The wall clock of the process around all of it, and the command's own around the request,
must account for the same time: work on another stream that goes on after the second event is in
both of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from statistics import median, median_low
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.judge.measure.clock import Batch, Reading, read
from tilefoundry.judge.measure.giving import Clock
from tilefoundry.judge.measure.player import WARM_SECONDS, Player
from tilefoundry.judge.measure.statistics import calls_for, steady
from tilefoundry.judge.process import Child
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.quantity import bytes_text

BATCH_SECONDS = 5e-3
MOST_SETS, SETS_BYTES = 256, 24 << 30
"""Sets of inputs that are held, and the memory that they and their results may take at most."""
SPARE = 3 / 4
"""Part of a device's free memory that all processes may take together, but for what a program
needs beside its inputs and results."""
LEAST_HELD, MOST_HELD = 1e-3, 50e-3
"""Seconds for which the device is held while calls are queued."""
MOST_BATCHES = 16
"""Batches of a figure on warm data: where few sets lie in the cache, each has few calls."""
COLD_TRIES = 4
"""Batches on cold data in which it is settled how long the device is held: the first allocate."""
EMPTY = 9
MOST_CALLS = 256
"""Calls of one batch: the driver queues about a thousand launches."""
LEAD = 1
ALLOWED_SECONDS = 4e-4
"""What may be unaccounted for in a batch: two processes, a driver and a device take part."""


def wall(pid: int) -> Reading:
    """The wall clock: the device is what works, so that processor time counts for nothing."""
    reading = read(pid)
    return Reading(reading.wall, None, reading.waited)


@dataclass(frozen=True)
class Told:
    """What one batch said: seconds on the device, of the process's wall clock, of the host."""

    device: float
    wall: float
    host: float
    held: float
    starved: bool


def sets_of(given: int, results: int, cache: int, memory: int) -> tuple[int, int]:
    """Sets that are held of inputs of ``given`` bytes, with their results and with what inputs
    are renewed from in ``memory`` bytes, and how many of them lie in half of a cache; refuses
    memory that holds none."""
    each = max(1, given + results)
    needs = 2 * given + each
    if needs > memory:
        refuse("measure-memory", None, needs=bytes_text(needs), memory=bytes_text(memory))
    fits = (memory - 2 * given) // each
    return min(MOST_SETS, fits), max(1, min(MOST_SETS, fits, cache // 2 // each))


class DevicePlayer(Player):
    """A child that is timed on an accelerator."""

    lead, allowed = LEAD, ALLOWED_SECONDS

    def __init__(
        self, who: str, child: Child, threads: int, device: str, clock: Clock = wall
    ) -> None:
        self.device = device
        self.held = {"cold": LEAST_HELD, "warm": LEAST_HELD}
        """For how long the device is held in a batch."""
        self.told: dict[str, list[Told]] = {"cold": [], "warm": []}
        self.near = 1
        self.next = 0
        self.empty = 0.0
        super().__init__(who, child, [], threads, clock)

    def _held(
        self, held: float, doing: str, **request: Any
    ) -> tuple[Reading, Told, Mapping[str, Any]]:
        """Calls behind a device that is ``held``: the command's clock without that time."""
        taken, answer = self._asked("timed_device", doing, held=round(held * 1e9), **request)
        if "form" in answer:
            return taken, Told(0, 0, 0, held, False), answer
        names = ("ns", "wall", "host")
        if not all(isinstance(answer.get(n), int) and answer[n] >= 0 for n in names):
            self.child.died("it sent times of no known form")
        device, wall, host = (answer[n] / 1e9 for n in names)
        told = Told(device, wall, host, held, answer.get("starved") is True)
        return Reading(taken.wall - held, None), told, answer

    def share(self, count: int) -> int:
        found = self.child.ask("free", "asking for memory").get("free")
        if not isinstance(found, int):
            self.child.died("it sent no number of bytes")
        return int(found * SPARE) // count

    def stage(self, inputs: Mapping[str, RawTensor], written: Collection[str], memory: int) -> None:
        """Sets of inputs: one for each call of a batch, and as many as lie in half of the second
        cache."""
        cache = self.l2 if isinstance(self.l2, int) and self.l2 > 0 else 64 << 20
        given = sum(t.nbytes for t in inputs.values())
        self.sets, self.near = sets_of(given, self.results, cache, min(memory, SETS_BYTES))
        wrote = [n for n, name in enumerate(inputs) if name in written]
        self._stage(inputs, list(range(len(inputs))), wrote)

    def batch(self, calls: int, data: str) -> Batch:
        """One call on each of ``calls`` sets; each call's time is the mean of the batch."""
        assert self.runner is not None and self.fresh is not None
        if data == "warm":
            sets = list(range(min(calls, self.near)))
        else:
            sets = [(self.next + n) % self.sets for n in range(min(calls, self.sets))]
            self.next = (sets[-1] + 1) % self.sets
        changes = self.fresh.changes(len(sets))
        self.child.ask("release", "giving up its results")
        self._restore(sets)
        doing = f"timing {self.runner.signature.func}"
        taken, told, answer = self._held(self.held[data], doing, sets=sets, changes=changes,
                                         cold=data == "cold")  # fmt: skip
        self.runner.hold_form(answer, list(self.fresh.types))
        made = Batch((told.device / len(sets),) * len(sets), taken)
        self.batches[data].append(made)
        self.told[data].append(told)
        return made

    def _others(self) -> float:
        """None: processors are not what computes."""
        return 0.0

    def make_ready(self) -> None:
        """Nothing: each batch on cold data restores the sets that it goes on to."""

    def _several(self, calls: int, give: Callable[[], None] | None = None) -> tuple[float, ...]:
        """Figures of batches on the sets that lie in the cache."""
        return super()._several(min(MOST_BATCHES, -(-calls // self.near)), give)

    def _part(self, calls: int) -> int:
        return self.near

    def _figures(self, batch: Batch) -> tuple[float, ...]:
        return batch.times[:1]

    def imitate(self, other: Player) -> None:
        assert isinstance(other, DevicePlayer)
        super().imitate(other)
        self.held = dict(other.held)
        for told in self.told.values():
            told.clear()

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
            for data, most in (("cold", self.calls), ("warm", self.near)):
                self.held[data] = min(MOST_HELD, 2 * host * most + LEAST_HELD)
            self.is_steady = steady(figures)
        for _ in range(COLD_TRIES):
            self.batch(self.calls, "cold")
            told = self.told["cold"][-1]
            if not told.starved:
                break
            self.held["cold"] = min(MOST_HELD, max(told.held, 2 * told.host + LEAST_HELD))
            self.calls = max(1, min(self.calls, int(self.calls * MOST_HELD / (2 * told.host))))
        for data in self.batches:
            self.batches[data].clear()
            self.told[data].clear()
        self.empty = median(self._nothing() for _ in range(EMPTY))

    def _nothing(self) -> float:
        """Seconds between two events on the device with no call between them."""
        return self._held(LEAST_HELD, "timing nothing", sets=[], changes=[])[1].device

    def time_cold(self) -> None:
        """Calls on data that no cache holds: other data went through before."""
        self.cold.append(self.batch(self.calls, "cold").times[0])

    def busy(self, data: str) -> list[float]:
        """Not known: processors do not compute here."""
        return []

    def host(self, data: str) -> list[float]:
        """Seconds for which the host was busy with each call, while the device was held."""
        pairs = zip(self.told[data], self.batches[data], strict=True)
        return [told.host / len(batch.times) for told, batch in pairs]

    def clocks(self, data: str) -> dict[str, Any]:
        """The three clocks over the same batches: medians in seconds a batch; how many of the
        batches the device ran out of queued calls in; what the events themselves take; the sets
        that were held."""
        told = self.told[data]
        usual = self.cost[data].wall.usual
        device = median(t.device for t in told)
        return {
            "device": device,
            "process": median(t.wall - t.held for t in told),
            "command": median(b.taken.wall - usual for b in self.batches[data]),
            "empty": self.empty,
            "sets": self.sets,
            "starved": sum(t.starved for t in told),
            "batches": len(told),
            "calls": median_low(len(b.times) for b in self.batches[data]),
            **self._held_to(data, device),
        }
