"""The calls of a candidate on the sets of a case, and what is found on their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from tilefoundry.judge.ahead import Ahead
from tilefoundry.judge.asked import Asked
from tilefoundry.judge.case import Case, Judged, Looked, look
from tilefoundry.judge.draw import stream
from tilefoundry.judge.inputs import Drawn, Turn, accepted, turns
from tilefoundry.judge.later import Later
from tilefoundry.judge.run import Runner
from tilefoundry.judge.tensor import RawTensor

Called = tuple[Turn, Sequence[RawTensor], Future[Looked]]
"""A call, what it returned, and what is found on that, under way."""


class Turns:
    """Calls in an order that the seed decides; with ``once``, one on each set. What a call
    returned is looked at during what comes next."""

    def __init__(self, seed: int, later: Later, once: bool, views: bool) -> None:
        self.seed, self.later, self.once, self.views = seed, later, once, views

    def planned(self, dims: Mapping[str, int], count: int, near_by: bool) -> Sequence[Turn]:
        """The calls on ``count`` sets of inputs."""
        if self.once or near_by:
            return [Turn(n) for n in range(count)]
        return turns(stream(self.seed, "turns", sorted(dims.items())), count, self.views)

    def ahead(self, runner: Runner, ahead: Ahead, asked: Asked) -> Sequence[Called]:
        """The calls of the first case, each as soon as it is known what is wanted."""
        dims, draws = asked.cases[0], ahead.draws.result()
        planned = self.planned(dims, len(draws), False)
        made: list[Called] = []
        firsts: dict[int, Sequence[RawTensor]] = {}
        for turn in accepted(planned, lambda draw: ahead.wanted(draw).result() is not None):
            want = ahead.wanted(turn.draw).result() or ()
            called = self._called(runner, asked.judged, dims, turn, draws[turn.draw], want, firsts)
            made.append((turn, *called))
        runner.end()
        return made

    def run(self, runner: Runner, case: Case, made: Sequence[Called] = ()) -> None:
        """Call the candidate and judge each call; those that were ``made`` already are judged."""
        if case.neighbour:
            extents = " ".join(f"{name}={value}" for name, value in case.dims.items())
            runner.where = f" at {extents}, which the open extents allow"
        for turn, got, looked in made:
            turn = replace(turn, draw=case.places.index(turn.draw))
            case.first.setdefault(turn.draw, got)
            self._next(case, turn, got, looked)
        if made:
            return
        planned = self.planned(case.dims, case.count, case.neighbour)
        for turn in accepted(planned, lambda draw: draw in case.places):
            turn = replace(turn, draw=case.places.index(turn.draw))
            drawn, want = case.draws[turn.draw], case.wanted[turn.draw]
            called = self._called(runner, case.judged, case.dims, turn, drawn, want, case.first)
            self._next(case, turn, *called)
        runner.end()

    def _next(
        self, case: Case, turn: Turn, got: Sequence[RawTensor], looked: Future[Looked]
    ) -> None:
        case.settle()
        case.pending = turn, got, looked

    def _called(
        self,
        runner: Runner,
        judged: Judged,
        dims: Mapping[str, int],
        turn: Turn,
        drawn: Drawn,
        want: Sequence[RawTensor],
        firsts: dict[int, Sequence[RawTensor]],
    ) -> tuple[Sequence[RawTensor], Future[Looked]]:
        poison = [output.nbytes for output in want]
        got = runner.run(drawn.inputs, poison, turn.arrangement, turn.same)
        runner.hold_outputs(got, dims)
        known = firsts.setdefault(turn.draw, got)
        return got, self.later.begin(object(), look, judged, got, want, known)
