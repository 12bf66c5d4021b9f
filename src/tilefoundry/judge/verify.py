"""``verify-report``: run again what a report says was checked or measured, and compare."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.diag import refuse
from tilefoundry.judge.check import check
from tilefoundry.judge.measure.request import Request as Measurement
from tilefoundry.judge.measure.session import measure
from tilefoundry.judge.measure.verify import hold_measured
from tilefoundry.judge.parsed import parsed
from tilefoundry.judge.report import STATED, line, seed_origin
from tilefoundry.judge.request import Request


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the report says. ``counts``: the report does not hold; else it is
    only said, such as another version of a library."""

    what: str
    reported: object
    found: object
    counts: bool = True

    def record(self) -> dict[str, object]:
        return {"what": self.what, "reported": self.reported, "found": self.found,
                "counts": self.counts}  # fmt: skip


@dataclass(frozen=True)
class Verified:
    """A report and what running it again found."""

    path: str
    reported: Mapping[str, Any]
    found: Mapping[str, Any]
    differences: Sequence[Difference]
    reference: Verified | None = None
    """The report that this one names, of the reference's own check or of the check of what was
    measured, run again too."""

    @property
    def holds(self) -> bool:
        here = not any(d.counts for d in self.differences)
        return here and (self.reference is None or self.reference.holds)

    def record(self) -> dict[str, object]:
        return {
            "report": self.path,
            "verdict": "holds" if self.holds else "does not hold",
            "reported": self.reported["verdict"],
            "found": self.found["verdict"],
            "function": self.found["function"],
            "seed": self.found["seed"],
            "seed_is": self.reported["seed_is"],
            "differences": [d.record() for d in self.differences],
            **({} if self.reference is None else {"reference": self.reference.record()}),
        }

    def text(self) -> str:
        head = self.record()
        keys = ("report", "verdict", "reported", "found", "function", "seed", "seed_is")
        lines = [line("verify", {key: head[key] for key in keys})]
        if head["seed_is"] == seed_origin(stated=True):
            lines.append(f"#   note: {STATED}")
        lines += [line("difference", d.record()) for d in self.differences]
        if self.reference is not None:
            lines.append(self.reference.text())
        return "\n".join(lines)


def verify(path: str) -> Verified:
    """Carry out again the check or the measurement of the report at ``path``; refuses what is no
    report, and whatever keeps it from a verdict."""
    try:
        reported = parsed(Path(path).read_bytes())
        if not isinstance(reported, dict):
            _no_report(path, f"it is a JSON {type(reported).__name__}, no object")
        kind = reported.get("kind")
        if kind not in ("check", "measure"):
            _no_report(path, f"its kind is {kind!r}")
        reads = Request.read if kind == "check" else Measurement.read
        request = reads(reported["request"], int(reported["seed"]))
        _shape(reported)
    except OSError as error:
        _no_report(path, error.strerror or "it cannot be read")
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
        _no_report(path, f"{type(error).__name__}: {error}")
    again = measure(request) if isinstance(request, Measurement) else check(request)
    found = json.loads(json.dumps(again.record()))
    behind = request.checked if isinstance(request, Measurement) else request.verified
    reference = None if behind is None else verify(behind)
    return Verified(path, reported, found, differences(reported, found), reference)


def differences(reported: Mapping[str, Any], found: Mapping[str, Any]) -> list[Difference]:
    """What of a report is not so when it is carried out again."""
    seen: list[Difference] = []

    def hold(what: str, was: object, now: object, counts: bool = True) -> None:
        if was != now and (was == was or now == now):  # NaN is like NaN
            seen.append(Difference(what, was, now, counts))

    if reported["kind"] == "measure":
        hold_measured(hold, reported, found)
        return seen
    for key in ("verdict", "function", "candidate", "target", "device", "predicates", "libraries"):
        hold(key, reported[key], found[key])
    hold("program", reported["program"]["sha256"], found["program"]["sha256"])
    for key in ("sources", "reference", "weights", "manners"):
        for name in sorted({*reported[key], *found[key]}):
            hold(f"{key} {name}", reported[key].get(name), found[key].get(name))
    for key in ("versions", "artefacts"):
        for name in sorted({*reported[key], *found[key]}):
            hold(f"{key} {name}", reported[key].get(name), found[key].get(name), False)
    _hold_rows(hold, "tensor", reported["tensors"], found["tensors"],
               ("part", "name", "origin", "dims"), ("sha256",))  # fmt: skip
    _hold_rows(hold, "turn", reported["turns"], found["turns"],
               ("dims", "values", "placed"), ("verdict",))  # fmt: skip
    alike = reported["versions"] == found["versions"] and found["deterministic"] == "yes"
    measured = ("verdict", "value", "differ", "of") if alike else ("verdict", "of")
    _hold_rows(hold, "finding", reported["findings"], found["findings"],
               ("output", "dims", "fn", "bounds"), measured)  # fmt: skip
    return seen


def _hold_rows(
    hold: Any,
    what: str,
    reported: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    named: Sequence[str],
    held: Sequence[str],
) -> None:
    """Compare lists of records: the same ones in the same order, with the same values."""
    names = [[str(row.get(key)) for key in named] for row in (*reported, *found)]
    ours, theirs = names[: len(reported)], names[len(reported) :]
    if ours != theirs:
        hold(f"{what}s", [" ".join(n) for n in ours], [" ".join(n) for n in theirs])
        return
    for name, was, now in zip(ours, reported, found, strict=True):
        for key in held:
            hold(f"{what} {' '.join(name)} {key}", was.get(key), now.get(key))


def _shape(reported: Mapping[str, Any]) -> None:
    """KeyError or TypeError where a record lacks what is compared."""
    differences(reported, reported)
    if reported["seed_is"] not in (seed_origin(True), seed_origin(False)):
        raise ValueError("its seed is neither stated nor drawn")


def _no_report(path: str, why: str) -> NoReturn:
    refuse("verify-report-form", None, path=path, why=why[:160])
