"""One side of a measurement in one process: verified, warmed up, timed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, median_low
from typing import Any

import numpy as np

from tilefoundry.judge.measure.clock import (
    ALLOWED_SECONDS,
    FREE,
    Batch,
    Cost,
    Doubt,
    Reading,
    aside,
    beside,
    doubt,
    others,
    read,
)
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.giving import GIVEN_BYTES, Clock, Given
from tilefoundry.judge.measure.statistics import calls_for, steady
from tilefoundry.judge.measure.still import Still
from tilefoundry.judge.numbers import Array
from tilefoundry.judge.process import Child
from tilefoundry.judge.run import Runner
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor, place
from tilefoundry.judge.weights import Weights

BITS = {1: "u8", 2: "i16", 4: "i32", 8: "i64"}
"""Integers of as many bytes: all that torch can flip bits of."""
PICKS = secrets.SystemRandom()
BATCH_SECONDS = 0.01
MOST_CALLS = 200
LEAD = 2
"""Calls that bring data and code into the caches again, before those that count."""
ALONE_SECONDS = 1e-3
"""Calls from so many seconds on are asked for one by one."""
KEPT_CALLS = 8
"""How many calls one request must be worth: the results of all are kept and given together."""
WARM_SECONDS = 3.0
"""Time after which a process that does not become steady is measured as it is."""
REHEARSALS = 3
"""Turns of a program of ours before the rounds, in which it takes more; one more comes before
them."""


class Player:
    """A child that is timed on processors; ``who`` is ``candidate`` or ``rival``."""

    device = "cpu"
    lead, allowed = LEAD, ALLOWED_SECONDS

    def __init__(
        self,
        who: str,
        child: Child,
        cpus: Sequence[int],
        threads: int,
        clock: Clock = read,
    ) -> None:
        self.who, self.child, self.clock = who, child, clock
        told = child.ask("pin", "starting", cpus=list(cpus), threads=threads, device=self.device)
        self.l2 = told.get("l2")
        self.pid = child.pid
        self.still = Still.of(child, self.pid, told.get("probe"))
        """Its memory, where it can be read."""
        self.stands, self.places = False, None
        """Whether it was stopped after its last batch; where it says that the results of that
        lie."""
        self.threads, self.worked = threads, 0.0
        self.late: dict[str, list[float]] = {"cold": [], "warm": []}
        """Seconds of each batch (``worked``: of the last) in which its threads were at work between
        answer and standing still: no clock tells that from threads that spin until they are
        needed."""
        self.cost = {"cold": FREE, "warm": FREE}
        self.usual: dict[str, list[Batch]] = {"cold": [], "warm": []}
        """Batches of a program of ours like this side's, in turn with them; likewise the giving
        of its results. ``cost`` and ``giving`` are what those took."""
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
        self.results, self.sets = 0, 1
        self.restored: list[int] = []
        self.givings: dict[str, list[Batch]] = {"cold": [], "warm": []}
        """What passed until results were here."""
        self.giving = dict(self.cost)
        self.usual_givings: dict[str, list[Batch]] = {"cold": [], "warm": []}
        self.asides: list[Reading] = []
        self.between: list[Batch] = []
        self.usual_between: list[Batch] = []
        """What turns took of the processor beside batches and givings: whoever knows the inputs
        of the next call could compute then."""
        self.turns: list[tuple[float, float]] = []
        """Of each: what other processes of its jail took, and its calls."""
        self.snapshots: list[tuple[dict[str, RawTensor], list[RawTensor]]] = []

    def _asked(self, what: str, doing: str, **request: Any) -> tuple[Reading, dict[str, Any]]:
        """An answer, and what it took on the command's clocks."""
        self._go()
        before = self.clock(self.pid)
        answer = self.child.ask(what, doing, **request)
        self.ended = self.clock(self.pid)
        if what == "timed" and self.still is not None:
            self.still.stop()
            self.stands = True
            answered, self.ended = self.ended, self.ended.until(self.clock(self.pid))
            late = self.ended.since(answered)
            self.worked = late.wall if late.cpu is None else min(late.wall, late.cpu)
        return self.ended.since(before), answer

    def _go(self) -> None:
        """Let it go on where it was stopped after a batch."""
        if self.stands:
            self.child.go()
            self.stands = False

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
        self.fresh, self.results = fresh, results
        if self.still is not None:
            self.still.results = results
        fits = GIVEN_BYTES // max(results, 1)
        self.most = MOST_CALLS if fits >= MOST_CALLS else fits if fits >= KEPT_CALLS else 1
        return self.runner

    def share(self, count: int) -> int:
        """Bytes that each of ``count`` processes may fill with inputs and results; 0 where one
        batch of them is all that any holds."""
        return 0

    def stage(self, inputs: Mapping[str, RawTensor], written: Collection[str], memory: int) -> None:
        """Give the process the inputs of its timed calls; those ``written`` by calls of either
        side are there as often as one request has calls, and are restored before each.
        ``memory`` is its :meth:`share`."""
        own = [n for n, name in enumerate(inputs) if name in written]
        self.sets = self.most if own else 1
        self._stage(inputs, own, own)

    def _stage(
        self, inputs: Mapping[str, RawTensor], own: Sequence[int], written: Sequence[int]
    ) -> None:
        assert self.runner is not None and self.fresh is not None
        folder, fresh = self.runner.folder, self.fresh
        self.restored = [n for n in written if n not in fresh.open]

        def there(name: str, dtype: str, data: Array, shape: Sequence[int]) -> dict[str, Any]:
            path = folder / f"{name}.staged"
            path.write_bytes(memoryview(data.view("u1").data))
            return place(str(path), 0, dtype, tuple(shape))

        places = [there(f"{n}", t.dtype.name, np.ascontiguousarray(t.flat), t.shape)
                  for n, t in enumerate(inputs.values())]  # fmt: skip
        renewed = [
            [n, *(None if a is None else there(f"{n}.{which}", BITS[a.itemsize], a, a.shape)
                  for which, a in (("base", base), ("mask", fresh.masks.get(n))))]
            for n, base in fresh.bases.items()
        ]  # fmt: skip
        self.child.ask("stage", "taking its inputs", inputs=places, sets=self.sets, own=own,
                       restored=self.restored, renewed=renewed)  # fmt: skip
        for used in folder.iterdir():
            used.unlink()
        capacity = max(GIVEN_BYTES, self.results)
        self.given = Given(self.child, self.pid, self.clock, folder / "timed.output", capacity)

    def make_ready(self) -> None:
        """Renew the inputs of the next call, and restore what calls wrote, before caches are
        filled: the process stands still again afterwards."""
        assert self.fresh is not None
        self.child.go()
        self._restore([0])
        (changes,) = self.fresh.changes(1)
        self.child.ask("renew", "renewing its inputs", set=0, changes=changes)
        self.child.stop()

    def _restore(self, sets: Sequence[int]) -> None:
        if self.restored:
            self._go()
            self.child.ask("restore", "restoring its inputs", sets=list(sets))

    def batch(self, calls: int, data: str) -> Batch:
        """Times of ``calls`` calls on ``cold`` or ``warm`` data."""
        assert self.runner is not None and self.fresh is not None
        sets = list(range(calls)) if self.sets > 1 else [0] * calls
        changes: Sequence[Any] = [[]]  # of the cold call: they were made before
        if data == "warm":
            self._restore(sets)
            changes = self.fresh.changes(calls)
        doing = f"timing {self.runner.signature.func}"
        made, answer = self._timed("timed", doing, sets=sets, changes=changes,
                                   still=self.still is not None)  # fmt: skip
        self.places = answer.get("places")
        self.runner.hold_form(answer, list(self.fresh.types))
        if len(made.times) != calls:
            self.child.died(f"it sent {len(made.times)} times of {calls} calls")
        self.batches[data].append(made)
        self.late[data].append(self.worked)
        return made

    def give(self, data: str, judged: bool) -> None:
        """Take results of the last batch; one of them is to be judged if ``judged``. The process
        did not know before of which batch. Where it does not stand still, the time until they are
        here is taken too."""
        assert self.runner is not None and self.fresh is not None
        since, names = self.ended, list(self.fresh.types)
        there = range(len(self.fresh.batch))
        calls = list(there[-1:] if self.runner.manners.static else there)
        if (fits := max(1, GIVEN_BYTES // max(1, self.results))) < len(calls):
            calls = PICKS.sample(calls, fits)
        answer: dict[str, Any] = {}
        if self.still is None:
            taken, answer = self.given.take(calls, since)
            self.runner.hold_form(answer, names)
            self.givings[data].append(Batch((), taken))
            self.asides.append(taken)
        if judged:
            picked = secrets.randbelow(len(calls))
            if self.still is None:
                found = self.given.read(answer, picked)
            else:
                found = self.still.read(self.places, calls[picked])
            aside, look = self._asked("look", "looking at its results", call=calls[picked])
            self.asides.append(aside)
            self.runner.hold_form(look, names)
            self.snapshots.append((self.fresh.at(calls[picked]), found))
        self.asides.append(self._asked("spoil", "giving up its results", calls=calls)[0])

    def _several(self, calls: int, give: Callable[[], None] | None = None) -> tuple[float, ...]:
        """Times of calls on warm data, those that lead left out; after any of the batches
        results are given, which others lead again."""
        found: list[float] = []
        part, lead = self._part(calls), self.lead
        at = secrets.randbelow(calls) if give is not None else calls
        while len(found) < calls:
            times = self._figures(self.batch(part, "warm"))
            found += times[lead:]
            lead = max(0, lead - len(times))
            if give is not None and at < len(found):
                give()
                at, lead = calls, self.lead
        return tuple(found)

    def _part(self, calls: int) -> int:
        """Calls of each request of a round: all the same, so that none is known for the last."""
        whole = self.lead + calls
        return -(-whole // -(-whole // self.most))

    def _figures(self, batch: Batch) -> tuple[float, ...]:
        """What counts of a batch on warm data."""
        return batch.times

    def warm_up(self) -> None:
        """Call until medians of batches agree, and settle how many calls make a batch."""
        figures: list[float] = []
        end = time.monotonic() + WARM_SECONDS
        while not self.is_steady and (not figures or time.monotonic() < end):
            figures.append(median(self._several(self.calls)))
            self.warmup += self.lead + self.calls
            self.calls = calls_for(BATCH_SECONDS, figures[-1], MOST_CALLS)
            if figures[-1] >= ALONE_SECONDS:
                self.most = 1
            self.is_steady = steady(figures)
        self.batches["warm"].clear()
        self.late["warm"].clear()

    def rehearse(self, ours: Player, evict: Callable[[], None]) -> None:
        """Learn from turns of a program of ours what batches like this side's take."""
        for _ in range(REHEARSALS + 1):
            self.compare(ours, evict)
        for data in self.cost:
            del self.usual[data][:1], self.usual_givings[data][:1]
        del self.usual_between[:1]

    def compare(self, ours: Player, evict: Callable[[], None]) -> None:
        """A turn of a program of ours in place of this side's."""
        ours.imitate(self)
        ours.turn(evict, "both", False)
        for data in self.cost:
            self.usual[data] += ours.batches[data]
            self.usual_givings[data] += ours.givings[data]
        self.usual_between += ours.between

    def imitate(self, other: Player) -> None:
        """Make batches as the player ``other`` does."""
        assert self.runner is not None and other.runner is not None
        self.runner.manners = other.runner.manners
        self.calls, self.most = other.calls, other.most
        for made in (*self.batches.values(), *self.givings.values(), self.between):
            made.clear()

    def doubts(self, threads: int) -> list[Doubt]:
        """Where its times leave out what the parent's clocks show."""
        who = f"the {self.who}"
        found = [beside(who, self.turns)]
        found.append(aside(who, self.between, self.usual_between, threads, self.allowed))
        for data in self.cost:
            self.cost[data] = Cost.of(self.usual[data])
            if self.usual_givings[data]:
                self.giving[data] = Cost.of(self.usual_givings[data])
            found.append(doubt(who, self.batches[data], self.cost[data], threads, self.allowed))
            if given := self.givings[data]:
                found.append(doubt(who, given, self.giving[data], threads, self.allowed))
        return [one for one in found if one is not None]

    def busy(self, data: str) -> list[float]:
        """Processor time over the calls' time, of each batch; empty where it is not known."""
        found: list[float] = []
        for batch in self.batches[data]:
            known, told = self.cost[data].cpu, sum(batch.times)
            if batch.taken.cpu is not None and known is not None and told:
                found.append(max(0.0, batch.taken.cpu - known.usual) / told)
        return found

    def host(self, data: str) -> list[float]:
        """No time of its own: a call is what the host does."""
        return []

    def clocks(self, data: str) -> dict[str, Any]:
        """The clocks over the same batches, medians in seconds a batch: the process's own, the
        command's, and the processor time that the system counted."""
        batches, known = self.batches[data], self.cost[data]
        cpus = [b.taken.cpu - known.cpu.usual for b in batches
                if b.taken.cpu is not None and known.cpu is not None]  # fmt: skip
        told = median(sum(b.times) for b in batches)
        return {
            "process": told,
            "command": median(b.taken.wall - known.wall.usual for b in batches),
            "processor": median(cpus) if cpus else None,
            "batches": len(batches),
            "calls": median_low(len(b.times) for b in batches),
            **self._held_to(data, told),
            "results": "given" if self.still is None else "read while it stood still",
        }

    def _held_to(self, data: str, told: float) -> dict[str, object]:
        """How well the clocks hold what a process ``told`` of a batch, in seconds."""
        room = self._room(data)
        return {"room": room, "unheld": room / told if told else None}

    def _room(self, data: str) -> float:
        """Seconds that a batch, and the giving of its results, might hide together."""
        batches, known, given = self.batches[data], self.cost[data], self.giving[data]
        room = median(known.room(b, self.allowed) for b in batches)
        room += self._beside()
        if self.still is not None:  # with one thread the processor's clock tells what was late
            late = median(self.late[data]) if self.threads > 1 else 0.0
            return room + known.noise + late
        nothing = Batch((), Reading(0.0, 0.0))
        return room + given.room(nothing, self.allowed) + known.noise + given.noise

    def turn(self, evict: Callable[[], None], given: str, judged: bool) -> None:
        """Cold, then warm; results are taken of the ``cold`` call, of a ``warm`` batch, or of
        ``both``."""
        before, counts = self._others(), {d: len(made) for d, made in self.batches.items()}
        begun, seen = self.clock(self.pid), len(self.asides)
        self.make_ready()
        evict()
        self.child.go()
        self.time_cold()
        if given != "warm":
            self.give("cold", judged)
        self.time_warm(None if given == "cold" else partial(self.give, "warm", judged))
        self.child.stop()
        made = [b for data, count in counts.items() for b in self.batches[data][count:]]
        self._between(self.clock(self.pid).since(begun), made, self.asides[seen:])
        self.turns.append((self._others() - before, sum(sum(b.times) for b in made)))

    def _between(self, whole: Reading, made: Sequence[Batch], given: Sequence[Reading]) -> None:
        """Keep what a turn took in none of its batches and givings."""
        if whole.cpu is not None:
            parts = [*(b.taken for b in made), *given]
            wall = whole.wall - sum(taken.wall for taken in parts)
            cpu = whole.cpu - sum(taken.cpu or 0.0 for taken in parts)
            self.between.append(Batch((), Reading(wall, cpu)))

    def _beside(self) -> float:
        """Seconds of a turn in which threads computed between batches more than those of a program
        of ours: spun, or worked ahead."""
        if self.threads == 1 or not self.between or not self.usual_between:
            return 0.0
        took, usual = (median(b.taken.cpu or 0.0 for b in found)
                       for found in (self.between, self.usual_between))  # fmt: skip
        return max(0.0, took - usual)

    def _others(self) -> float:
        """CPU seconds of other processes in this one's jail."""
        return others(self.pid)

    def time_cold(self) -> None:
        """One call on data that no cache holds: the caller has filled them before."""
        self.cold.append(self.batch(1, "cold").times[0])

    def time_warm(self, give: Callable[[], None] | None) -> None:
        """Calls on data that the last call used; ``give`` is called after one of the batches."""
        times = self._several(self.calls, give)
        self.warm.append(median(times))
        self.least = min(self.least, *times)


def rounds(
    players: Sequence[Player],
    ours: Player,
    runs: int,
    evict: Callable[[], None],
    judged: Collection[int],
    shuffle: Callable[[list[str]], object] = PICKS.shuffle,
) -> None:
    """``runs`` rounds: each side in turn, cold then warm; who begins alternates. A program of
    ours takes a turn in each, like one side's and like the other's.

    Only one side's processes run at a time. In half of the rounds results are given of the cold
    call, in the others of one of the warm batches, which no process knows before; in the rounds
    ``judged`` one of them is kept, to be held to the reference.
    """
    given = {player: (["cold", "warm"] * runs)[:runs] for player in players}
    for player in players:
        shuffle(given[player])
        player.child.stop()
    for number in range(runs):
        order = players if number % 2 == 0 else players[::-1]
        for player in order:
            player.turn(evict, given[player][number], number in judged)
        players[number % len(players)].compare(ours, evict)
    for player in players:
        player.child.go()
