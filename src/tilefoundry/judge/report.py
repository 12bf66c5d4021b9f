"""The answer of a check: one record, as text of greppable lines and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.judge.predicates import Finding
from tilefoundry.judge.tensor import RawTensor, spell


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
    """A whole check. ``reference`` says what the outputs were compared with."""

    source: str
    function: str
    candidate: str
    device: str
    torch: str
    seed: int | None
    runs: int
    sources: Mapping[str, str]
    reference: Mapping[str, str]
    weights: Mapping[str, object]
    tensors: Sequence[Held]
    rows: Sequence[Row]

    @property
    def agrees(self) -> bool:
        return all(row.finding.passed for row in self.rows)

    def record(self) -> dict[str, object]:
        return {
            "verdict": "agrees" if self.agrees else "disagrees",
            "source": self.source,
            "function": self.function,
            "candidate": self.candidate,
            "device": self.device,
            "torch": self.torch,
            "seed": self.seed,
            "runs": self.runs,
            "sources": dict(self.sources),
            "reference": dict(self.reference),
            "weights": dict(self.weights),
            "tensors": [held.record() for held in self.tensors],
            "findings": [row.record() for row in self.rows],
        }

    def text(self) -> str:
        """The record as lines ``# family key=value ...``."""
        head = self.record()
        keys = ("verdict", "source", "function", "candidate", "device", "torch", "seed", "runs")
        lines = [line("check", {key: head[key] for key in keys})]
        lines += [
            line("source", {"file": f, "sha256": digest}) for f, digest in self.sources.items()
        ]
        lines.append(line("reference", self.reference))
        if self.weights:
            weights = dict(self.weights)
            notes = [weights.pop("note")] if "note" in weights else []
            lines.append(line("weights", weights) + _notes(notes))
        for held in self.tensors:
            record = held.record() | {"shape": spell(held.tensor.shape)}
            lines.append(line(str(record.pop("part")), record))
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
        case str() if not value or any(c.isspace() or c == '"' for c in value):
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
