"""Judging one set of extents: what each call returned, by the predicates, by draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.judge.inputs import Drawn, Turn
from tilefoundry.judge.numbers import alike
from tilefoundry.judge.predicates import Finding, compare, misplaced, worst_row
from tilefoundry.judge.report import Errors, Row, TurnRow
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor

LENIENCE = 4.0
"""How many times the reference's own error a candidate may be off, on draws whose values no
bound was stated for."""
EXACT_SAMPLE = 1 << 20
"""Elements of each output whose errors against float64 are reported."""
ERRORS = (Predicate("rel_l2", {"max": 0.0}), Predicate("max_abs", {"max": 0.0}))

Judged = Mapping[str, Sequence[Predicate]]
Looked = tuple[bool | None, list[tuple[list[Finding], tuple[int, tuple[int, ...]] | None]]]
"""Whether outputs are those of a former call, and for each what predicates found, and which NaN
and infinities stand elsewhere."""
Exact = tuple[Sequence[RawTensor], str]
"""The first elements of each output in float64, or why there are none."""
WorstRow = tuple[tuple[int, ...], float] | None


@dataclass
class Case:
    """One set of extents: the inputs, what is wanted on each, and what has been found."""

    dims: Mapping[str, int]
    judged: Judged
    draws: Sequence[Drawn]
    wanted: Sequence[Sequence[RawTensor]]
    evaluate: Callable[[Mapping[str, RawTensor], int], Exact]
    neighbour: bool = False
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What screening found, by output."""
    count: int = 0
    """How many sets were drawn, those that the reference has nothing to judge by too."""
    places: Sequence[int] = ()
    """Which of them these are, in rising order."""
    evaluated: dict[int, Exact] = field(default_factory=dict)
    """What ``evaluate`` said of a set."""
    worst: dict[tuple[str, int], Row] = field(default_factory=dict)
    turns: list[TurnRow] = field(default_factory=list)
    first: dict[int, Sequence[RawTensor]] = field(default_factory=dict)
    """The first outputs on each set."""
    pending: tuple[Turn, Sequence[RawTensor], Future[Looked]] | None = None
    """A call whose outputs are being looked at beside other work."""
    repeats: bool | None = None
    """Whether calls on the same inputs gave the same bytes; None before there were two."""
    own: Future[Mapping[str, Mapping[str, float]]] | None = None
    """The reference's errors, under way beside other work."""
    _seen: dict[tuple[str, int], tuple[RawTensor, RawTensor] | None] = field(default_factory=dict)
    """What was returned and wanted where a row failed."""

    def take(self, turn: Turn, got: Sequence[RawTensor], looked: Looked | None = None) -> None:
        """Judge the outputs of a call, by what :func:`look` found if it was done before."""
        known = self.first.setdefault(turn.draw, got)
        wanted = self.wanted[turn.draw]
        same, found = looked or look(self.judged, got, wanted, known)
        if same is not None:
            self.repeats = same and self.repeats is not False
        run, passed = len(self.turns), True
        values: dict[str, list[float]] = {}
        for n, (name, (findings, pattern)) in enumerate(zip(self.judged, found, strict=True)):
            want = self.wanted[turn.draw][n]
            notes = [self._lenient(turn, n, f, got[n]) for f in findings]
            findings = [replace(f, passed=True) if note else f
                        for f, note in zip(findings, notes, strict=True)]  # fmt: skip
            bad = not all(f.passed for f in findings)
            passed = passed and not bad
            values[name] = [f.value for f in findings]
            for place, (finding, note) in enumerate(zip(findings, notes, strict=True)):
                said = [note] if note else []
                if pattern is not None:
                    said.append(f"{pattern[0]} NaN or infinities stand in other places, first at "
                                f"{list(pattern[1])}")  # fmt: skip
                seen = Row(name, self.dims, finding, run, None, said)
                if self._keep((name, place), seen, lenient=bool(note)):
                    self._seen[name, place] = None if finding.passed else (got[n], want)
        self.turns.append(TurnRow(self.dims, self.draws[turn.draw].values, turn.spelled,
                                  self.neighbour, passed, values))  # fmt: skip

    def _keep(self, key: tuple[str, int], seen: Row, lenient: bool) -> bool:
        """Keep the worst row, and say whether this is it; what passed by lenience alone says so
        where nothing is worse."""
        known = self.worst.get(key)
        if known is None or _worse(seen.finding, known.finding, lenient):
            self.worst[key] = seen
            return True
        if lenient and known.finding.passed and len(known.notes) < 2:
            self.worst[key] = replace(known, notes=[*known.notes, *seen.notes])
        return False

    def _lenient(self, turn: Turn, n: int, finding: Finding, got: RawTensor) -> str:
        """Why a finding beyond its bound passes all the same: the reference is no better."""
        draw = self.draws[turn.draw]
        if finding.passed or draw.strict or finding.predicate.fn == "nan_inf":
            return ""
        if finding.predicate.fn == "equal" and got.dtype.is_float:
            return ""
        exact = self.exact(turn.draw, got.count)
        if not exact or exact[n].count != got.count:
            return ""
        want = self.wanted[turn.draw][n]
        ours, own = (_against(finding.predicate, x, exact[n]) for x in (got, want))
        if finding.predicate.fn == "cosine":
            ours, own = 1 - ours, 1 - own
        if not (math.isfinite(own) and ours <= LENIENCE * own):
            return ""
        return (f"{draw.values} values: beyond {finding.predicate}, but off float64 by {ours:.3g} "
                f"where the reference is by {own:.3g}")  # fmt: skip

    def settle(self) -> None:
        """Judge the outputs that are being looked at."""
        if self.pending is not None:
            (turn, got, looked), self.pending = self.pending, None
            self.take(turn, got, looked.result())

    def exact(self, draw: int, most: int) -> Sequence[RawTensor]:
        """The outputs on a set in float64; empty where there are none."""
        return self._in_float64(draw, most)[0]

    def _in_float64(self, draw: int, most: int) -> Exact:
        known = self.evaluated.get(draw)
        wanted = self.wanted[draw]
        if known is None or any(
            x.count < min(most, want.count) for x, want in zip(known[0], wanted, strict=False)
        ):
            known = self.evaluated[draw] = self.evaluate(self.draws[draw].inputs, most)
        return known

    def errors(self) -> list[Errors]:
        """How far the candidate and the reference are from float64, on the first set."""
        exact, why = self._in_float64(0, EXACT_SAMPLE)
        owns = self.own_errors() if self.own is None else self.own.result()
        found: list[Errors] = []
        for n, name in enumerate(self.judged):
            got, want = (x[n] for x in (self.first[0], self.wanted[0]))
            if why and want.dtype.is_float:
                found.append(Errors(name, why, 0, {}, {}))
            if name in owns:
                same = alike(got.flat, want.flat)
                ours = owns[name] if same else _errors(got, exact[n])
                found.append(Errors(name, "", exact[n].count, ours, owns[name]))
        return found

    def own_errors(self) -> Mapping[str, Mapping[str, float]]:
        """How far the reference is from float64, by output that has float64 to compare with."""
        exact, _ = self._in_float64(0, EXACT_SAMPLE)
        pairs = zip(self.judged, self.wanted[0], exact, strict=False)
        return {name: _errors(want, found) for name, want, found in pairs if want.dtype.is_float}

    @property
    def agrees(self) -> bool:
        self.settle()
        return all(row.finding.passed for row in self.worst.values())

    def rows(self) -> list[Row]:
        """The worst of each predicate, with what screening found beside it."""
        self.settle()
        keys = [(name, n) for name in self.judged for n in range(len(self.judged[name]))]
        found: dict[tuple[int, int], WorstRow] = {}
        rows: list[Row] = []
        for key in keys:
            row, pair = self.worst[key], self._seen.get(key)
            if pair is not None:
                at = id(pair[0]), id(pair[1])
                if at not in found:
                    found[at] = worst_row(*pair)
                row = replace(row, worst_row=found[at])
            rows.append(replace(row, notes=[*self.notes.get(key[0], ()), *row.notes]))
        return rows


def look(
    judged: Judged,
    got: Sequence[RawTensor],
    wanted: Sequence[RawTensor],
    known: Sequence[RawTensor],
) -> Looked:
    """What the predicates find on the outputs of a call, and whether they are the bytes of the
    first call on the set, ``known``: all that may be done beside other work."""
    same = None
    if known is not got:
        same = all(alike(a.flat, b.flat) for a, b in zip(known, got, strict=True))
    return same, [
        (compare(predicates, got[n], wanted[n]), misplaced(got[n], wanted[n]))
        for n, predicates in enumerate(judged.values())
    ]


def _errors(found: RawTensor, exact: RawTensor) -> dict[str, float]:
    part = RawTensor.from_values(DTYPES["f64"], exact.shape, found.values(0, exact.count))
    return {f.predicate.fn: f.value for f in compare(ERRORS, part, exact)}


def _against(predicate: Predicate, found: RawTensor, exact: RawTensor) -> float:
    """The quantity of a predicate, of the first elements against those in float64."""
    if predicate.fn == "ulp":  # distances among the values of the output's own type
        exact = RawTensor.from_values(found.dtype, exact.shape, exact.values())
        part = RawTensor(found.dtype, exact.shape, found.flat[: exact.count])
        return compare([predicate], part, exact)[0].value
    values = found.values(0, exact.count)
    if found.dtype.is_float:
        part = RawTensor.from_values(DTYPES["f64"], exact.shape, values)
        return compare([predicate], part, exact)[0].value
    part = RawTensor(found.dtype, exact.shape, found.flat[: exact.count])
    return compare([predicate], part, exact)[0].value


def _worse(a: Finding, b: Finding, lenient: bool) -> bool:
    if a.passed != b.passed:
        return b.passed
    if lenient:
        return False
    return a.value < b.value if a.predicate.fn == "cosine" else a.value > b.value
