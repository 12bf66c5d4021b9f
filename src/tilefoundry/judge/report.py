"""The answer of a check: one record, as text of greppable lines and as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.judge.predicates import Finding
from tilefoundry.judge.tensor import RawTensor, spell

STATED = (
    "the seed was stated by --seed: whoever wrote the candidate could know its inputs before; "
    "leave it out where that must not be"
)
"""What a reader must know of a seed that was not drawn for the run."""


def seed_origin(stated: bool) -> str:
    """Where a seed is from, in a word of a report."""
    return "stated" if stated else "drawn"


@dataclass(frozen=True)
class Row:
    """One predicate on one output at one set of extents: the worst over the runs."""

    output: str
    dims: Mapping[str, int]
    finding: Finding
    run: int
    worst_row: tuple[tuple[int, ...], float] | None
    notes: Sequence[str]

    def record(self) -> dict[str, object]:
        found = self.finding
        record: dict[str, object] = {
            "output": self.output,
            "dims": dict(self.dims),
            "fn": found.predicate.fn,
            "bounds": dict(found.predicate.bounds),
            "value": found.value,
            "verdict": "pass" if found.passed else "fail",
            "differ": found.differ,
            "of": found.count,
            **({} if found.outside is None else {"outside": found.outside}),
            "run": self.run,
            "notes": list(self.notes),
        }
        if found.index is not None:
            record |= {"index": list(found.index), "got": found.got, "expected": found.expected}
        if self.worst_row is not None:
            record |= {"worst_row": list(self.worst_row[0]), "worst_row_rel_l2": self.worst_row[1]}
        return record


@dataclass(frozen=True)
class TurnRow:
    """One call: the class of its inputs' values, where they lay, the verdict, and what each
    output's predicates measured, in their order."""

    dims: Mapping[str, int]
    values: str
    placed: str
    neighbour: bool
    passed: bool
    found: Mapping[str, Sequence[float]]

    def record(self) -> dict[str, object]:
        return {
            "dims": dict(self.dims),
            "values": self.values,
            "placed": self.placed,
            "neighbour": self.neighbour,
            "verdict": "pass" if self.passed else "fail",
            "found": {name: list(values) for name, values in self.found.items()},
        }


@dataclass(frozen=True)
class Errors:
    """How far an output is from an evaluation in float64, over the first ``count`` elements:
    of the candidate, and of the reference; ``why`` there is none."""

    output: str
    why: str
    count: int
    candidate: Mapping[str, float]
    reference: Mapping[str, float]

    def record(self) -> dict[str, object]:
        if self.why:
            return {"output": self.output, "why": self.why}
        return {"output": self.output, "of": self.count, "candidate": dict(self.candidate),
                "reference": dict(self.reference)}  # fmt: skip

    def flat(self) -> dict[str, object]:
        """The record without nesting, as it stands in a line."""
        if self.why:
            return self.record()
        sides = {"candidate": self.candidate, "reference": self.reference}
        figures = {f"{side}_{fn}": v for side, found in sides.items() for fn, v in found.items()}
        return {"output": self.output, "of": self.count, **figures}


@dataclass(frozen=True)
class Held:
    """One tensor that was used: its part, where it is from, its hash."""

    part: str
    name: str
    origin: str
    dims: Mapping[str, int]
    tensor: RawTensor

    def record(self) -> dict[str, object]:
        return {
            "part": self.part,
            "name": self.name,
            "origin": self.origin,
            "dims": dict(self.dims),
            "dtype": self.tensor.dtype.name,
            "shape": list(self.tensor.shape),
            "sha256": self.tensor.sha256,
        }


@dataclass(frozen=True)
class Report:
    """A whole check. ``request`` is what it was asked, ``reference`` says what the outputs were
    compared with and what that was checked against, ``notes`` what the reader must know."""

    request: Mapping[str, object]
    source: str
    function: str
    candidate: str
    target: str
    device: str
    versions: Mapping[str, str]
    seed: int
    seed_stated: bool
    """Whether the seed was given and not drawn for this run."""
    sources: Mapping[str, str]
    program: str
    """The text of the HIR as it was judged, whatever its file did to make it."""
    artefacts: Mapping[str, str]
    isolation: Mapping[str, str]
    manners: Mapping[str, object]
    libraries: str
    reference: Mapping[str, str]
    predicates: str
    weights: Mapping[str, object]
    tensors: Sequence[Held]
    rows: Sequence[Row]
    turns: Sequence[TurnRow]
    errors: Sequence[Errors]
    deterministic: bool | None
    notes: Sequence[str]

    @property
    def agrees(self) -> bool:
        return all(row.finding.passed for row in self.rows)

    @property
    def runs(self) -> int:
        return len(self.turns)

    def head(self) -> dict[str, object]:
        """What the first line says."""
        told = {None: "unknown", True: "yes", False: "no"}
        return {
            "verdict": "agrees" if self.agrees else "disagrees",
            "source": self.source,
            "function": self.function,
            "candidate": self.candidate,
            "target": self.target or "none",
            "device": self.device,
            "torch": self.versions["torch"],
            "seed": self.seed,
            "seed_is": seed_origin(self.seed_stated),
            "runs": self.runs,
            "deterministic": told[self.deterministic],
            "libraries": self.libraries,
        }

    def record(self) -> dict[str, object]:
        return {
            "kind": "check",
            **self.head(),
            "request": dict(self.request),
            "versions": dict(self.versions),
            "sources": dict(self.sources),
            "program": {
                "sha256": hashlib.sha256(self.program.encode()).hexdigest(),
                "text": self.program,
            },
            "artefacts": dict(self.artefacts),
            "isolation": dict(self.isolation),
            "manners": dict(self.manners),
            "reference": dict(self.reference),
            "predicates": self.predicates,
            "weights": dict(self.weights),
            "tensors": [held.record() for held in self.tensors],
            "findings": [row.record() for row in self.rows],
            "turns": [turn.record() for turn in self.turns],
            "errors": [errors.record() for errors in self.errors],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """The record as lines ``# family key=value ...``."""
        lines = [line("check", self.head()) + _notes(self.notes)]
        for family, files in (("source", self.sources), ("artefact", self.artefacts)):
            lines += [line(family, {"file": f, "sha256": digest}) for f, digest in files.items()]
        lines.append(line("reference", self.reference))
        if self.weights:
            weights = dict(self.weights)
            notes = [weights.pop("note")] if "note" in weights else []
            lines.append(line("weights", weights) + _notes(notes))
        for held in self.tensors:
            record = held.record() | {"shape": spell(held.tensor.shape)}
            lines.append(line(str(record.pop("part")), record))
        lines += [line("turns", told) for told in _by_case(self.turns)]
        lines += [line("error", errors.flat()) for errors in self.errors]
        for row in self.rows:
            record = row.record()
            bounds = record.pop("bounds")
            notes = record.pop("notes")
            assert isinstance(bounds, dict) and isinstance(notes, list)
            if row.finding.index is not None:
                record |= {"got": row.finding.spelled[0], "expected": row.finding.spelled[1]}
            fields = {"output": record.pop("output"), "fn": record.pop("fn"), **bounds, **record}
            lines.append(line("check", fields) + _notes(notes))
        return "\n".join(lines)


def _by_case(turns: Sequence[TurnRow]) -> list[dict[str, object]]:
    """The calls of each set of extents, by what was drawn and where it lay."""
    cases: dict[str, dict[str, object]] = {}
    for turn in turns:
        case = cases.setdefault(str(dict(turn.dims)), {"dims": dict(turn.dims)})
        if turn.neighbour:
            case["neighbour"] = "yes"
        verdicts = case.setdefault(turn.values, [])
        assert isinstance(verdicts, list)
        verdicts.append("pass" if turn.passed else "fail")
    return [
        {k: ",".join(v) if isinstance(v, list) else v for k, v in case.items()}
        for case in cases.values()
    ]


def _notes(notes: Sequence[object]) -> str:
    return "".join(f"\n#   note: {note}" for note in notes)


def line(family: str, values: Mapping[str, object]) -> str:
    """``# family key=value ...``; words with a space are quoted."""
    words = [f"{key}={_word(value)}" for key, value in values.items() if value != {}]
    return " ".join([f"# {family}", *words])


def _word(value: object) -> str:
    match value:
        case None:
            return "none"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
        case list():
            return f"[{','.join(map(_word, value))}]"
        case dict():
            return ",".join(f"{k}:{_word(v)}" for k, v in value.items())
        case str() if not all(c.isprintable() for c in value):
            return json.dumps(value)  # nothing that moves a cursor, or looks like another line
        case str() if not value or any(c.isspace() or c == '"' for c in value):
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
