"""One side of a measurement in one process: verified, warmed up, timed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tilefoundry.judge.channel import read_outputs
from tilefoundry.judge.measure.clock import (
    Batch,
    Overhead,
    Reading,
    hold,
    hold_giving,
    overhead,
    read,
)
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.statistics import calls_for, steady
from tilefoundry.judge.process import Child
from tilefoundry.judge.run import Runner
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor, place
from tilefoundry.judge.weights import Weights
from tilefoundry.judge.wire import Malformed

BATCH_SECONDS = 0.01
MOST_CALLS = 200
LEAD = 2
"""Calls that bring data and code into the caches again, before those that count."""
ALONE_SECONDS = 1e-3
"""Calls from so many seconds on are asked for one by one."""
KEPT_BYTES, KEPT_CALLS = 8 << 20, 8
"""Results that one request may leave in memory, and how many calls it must be worth: the results
of every call are kept, so that any may be judged."""
WARM_SECONDS = 3.0
"""Time after which a process that does not become steady is measured as it is."""
EMPTY, EMPTY_CALLS, EMPTY_COLD = 15, 33, 5
Clock = Callable[[int], Reading]


class Player:
    """A child that is timed on processors; ``who`` is ``candidate`` or ``rival``."""

    device = "cpu"

    def __init__(
        self,
        who: str,
        child: Child,
        cpus: Sequence[int],
        threads: int,
        evict: Callable[[], None],
        clock: Clock = read,
    ) -> None:
        self.who, self.child, self.clock = who, child, clock
        self.l2 = child.ask("pin", "starting", cpus=list(cpus), threads=threads,
                            device=self.device).get("l2")  # fmt: skip
        self.pid = child.pid
        self.cost = self._overhead(evict)
        self.runner: Runner | None = None
        self.fresh: Fresh | None = None
        self.batches: dict[str, list[Batch]] = {"cold": [], "warm": []}
        self.cold: list[float] = []
        self.warm: list[float] = []
        self.least = float("inf")
        self.calls = 1
        self.most = 1
        """Calls of one request; all their results are kept until the next."""
        self.warmup = 0
        self.is_steady = False
        self.snapshots: list[tuple[dict[str, RawTensor], list[RawTensor]]] = []

    def _overhead(self, evict: Callable[[], None]) -> dict[str, Overhead]:
        """Of cold and of warm batches, while no code of the author's is here yet."""
        self._empty(1)  # imports
        single = [self._empty(1) for _ in range(EMPTY)]
        many = [self._empty(EMPTY_CALLS) for _ in range(EMPTY)]
        cold: list[Batch] = []
        for _ in range(EMPTY_COLD):
            evict()
            cold.append(self._empty(1))
        warm = overhead(single, many)
        found = overhead(cold, many)
        return {"cold": replace(found, call=warm.call), "warm": warm}

    def _empty(self, calls: int) -> Batch:
        changes = [(0, 4, "0000803f")] * calls
        return self._timed("idle", "calling nothing", changes=changes)[0]

    def _asked(self, what: str, doing: str, **request: Any) -> tuple[Reading, dict[str, Any]]:
        """An answer, and what it took on the command's clocks."""
        before = self.clock(self.pid)
        answer = self.child.ask(what, doing, **request)
        return self.clock(self.pid).since(before), answer

    def _timed(self, what: str, doing: str, **request: Any) -> tuple[Batch, dict[str, Any]]:
        taken, answer = self._asked(what, doing, **request)
        times = answer.get("ns", [])
        if not isinstance(times, list) or not all(isinstance(t, int) and t >= 0 for t in times):
            self.child.died("it sent times of no known form")
        return Batch(tuple(t / 1e9 for t in times), taken), answer

    def prepare(
        self,
        signature: Signature,
        weights: Weights,
        device: str,
        folder: Path,
        fresh: Fresh,
        results: int,
    ) -> Runner:
        """Give the process its weights; its inputs are staged by :meth:`stage`. A call's
        results are ``results`` bytes."""
        self.runner = Runner(self.child, signature, weights, device, folder)
        self.fresh = fresh
        fits = KEPT_BYTES // max(results, 1)
        self.most = MOST_CALLS if fits >= MOST_CALLS else fits if fits >= KEPT_CALLS else 1
        return self.runner

    def stage(self, inputs: Mapping[str, RawTensor], sets: int = 1) -> None:
        """Give the process the inputs of its timed calls, to be held ``sets`` times."""
        assert self.runner is not None
        folder = self.runner.folder
        places = []
        for n, tensor in enumerate(inputs.values()):
            path = folder / f"{n}.staged"
            path.write_bytes(tensor.view)
            places.append(place(str(path), 0, tensor.dtype.name, tensor.shape))
        self.child.ask("stage", "taking its inputs", inputs=places, sets=sets)
        for used in folder.iterdir():
            used.unlink()

    def batch(self, calls: int, data: str) -> Batch:
        """Times of ``calls`` calls on ``cold`` or ``warm`` data."""
        assert self.runner is not None and self.fresh is not None
        changes = self.fresh.changes([0] * calls)
        doing = f"timing {self.runner.signature.func}"
        made, answer = self._timed("timed", doing, changes=changes)
        self.runner.hold_form(answer, list(self.fresh.types))
        if len(made.times) != calls:
            self.child.died(f"it sent {len(made.times)} times of {calls} calls")
        self.batches[data].append(made)
        return made

    def keep(self) -> None:
        """Take the results of one of the last calls, to be judged; the process did not know
        before, nor which.

        They must be there already: a process that computes only now is refused.
        """
        assert self.runner is not None and self.fresh is not None
        last = len(self.fresh.batch) - 1
        call = last if self.runner.manners.static else secrets.randbelow(last + 1)
        found, first = self._given(call, False)
        _, again = self._given(call, True)
        hold_giving(f"the {self.who}", first, again)
        self.snapshots.append((self.fresh.at(call), found))

    def _given(self, call: int, last: bool) -> tuple[list[RawTensor], float]:
        """The results of a call, and the seconds that it took to give them."""
        assert self.runner is not None and self.fresh is not None
        path = self.runner.folder / "timed.output"
        path.touch()
        doing = "giving its results"
        taken, answer = self._asked("results", doing, out=str(path), call=call, last=last)
        self.runner.hold_form(answer, list(self.fresh.types))
        with path.open("rb") as file:
            try:
                found = read_outputs(file)
            except Malformed as broken:
                self.child.died(f"it wrote {broken}")
        path.unlink()
        return found, taken.wall if taken.cpu is None else taken.cpu

    def _several(self, calls: int) -> tuple[float, ...]:
        """Times of calls on warm data, those that lead left out."""
        found: list[float] = []
        left = LEAD + calls
        while left > 0:
            part = min(left, self.most)
            found += self.batch(part, "warm").times
            left -= part
        return tuple(found[LEAD:])

    def warm_up(self) -> None:
        """Call until medians of batches agree, and settle how many calls make a batch."""
        figures: list[float] = []
        end = time.monotonic() + WARM_SECONDS
        while not self.is_steady and (not figures or time.monotonic() < end):
            figures.append(median(self._several(self.calls)))
            self.warmup += LEAD + self.calls
            self.calls = calls_for(BATCH_SECONDS, figures[-1], MOST_CALLS)
            if figures[-1] >= ALONE_SECONDS:
                self.most = 1
            self.is_steady = steady(figures)
        self.batches["warm"].clear()

    def hold_clocks(self, threads: int) -> None:
        """Refuse times that leave out what the parent's clocks show."""
        for data, batches in self.batches.items():
            hold(f"the {self.who}", batches, self.cost[data], threads)

    def busy(self, data: str) -> list[float]:
        """Processor time over the calls' time, of each batch; empty where it is not known."""
        found: list[float] = []
        for batch in self.batches[data]:
            usual = self.cost[data].of(len(batch.times))
            told = sum(batch.times)
            if batch.taken.cpu is not None and usual.cpu is not None and told:
                found.append(max(0.0, batch.taken.cpu - usual.cpu) / told)
        return found

    def clocks(self, data: str) -> dict[str, object]:
        """The clocks over the same batches, medians in seconds a batch: the process's own, the
        command's, and the processor time that the system counted."""
        batches, usual = self.batches[data], self.cost[data]
        costs = [(b.taken.cpu, usual.of(len(b.times)).cpu) for b in batches]
        cpus = [taken - cost for taken, cost in costs if taken is not None and cost is not None]
        return {
            "process": median(sum(b.times) for b in batches),
            "command": median(b.taken.wall - usual.of(len(b.times)).wall for b in batches),
            "processor": median(cpus) if cpus else None,
            "batches": len(batches),
        }

    def time_cold(self) -> None:
        """One call on data that no cache holds: the caller has filled them before."""
        self.cold.append(self.batch(1, "cold").times[0])

    def time_warm(self) -> None:
        """Calls on data that the last call used."""
        times = self._several(self.calls)
        self.warm.append(median(times))
        self.least = min(self.least, *times)


def rounds(
    players: Sequence[Player],
    runs: int,
    evict: Callable[[], None],
    judged: int,
    choose: Callable[[Sequence[str]], str] = secrets.choice,
) -> None:
    """``runs`` rounds: each side in turn, cold then warm; who begins alternates.

    Only one side's processes run at a time. In round ``judged`` and in the last one the results
    of a timed call are taken to be judged: of the cold one or the last warm one, as ``choose``
    says, which no process knows before.
    """
    for player in players:
        player.child.stop()
    for number in range(runs):
        order = players if number % 2 == 0 else players[::-1]
        for player in order:
            taken = choose(("cold", "warm")) if number in (judged, runs - 1) else ""
            evict()
            player.child.go()
            player.time_cold()
            if taken == "cold":
                player.keep()
            player.time_warm()
            if taken == "warm":
                player.keep()
            player.child.stop()
    for player in players:
        player.child.go()
