"""The answer of a measurement: one record, as lines that can be grepped and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tilefoundry.judge.measure.floor import Floor
from tilefoundry.judge.measure.statistics import Spread, spread
from tilefoundry.judge.report import STATED, Held, line, seed_origin
from tilefoundry.judge.tensor import spell
from tilefoundry.quantity import time_text

if TYPE_CHECKING:
    from tilefoundry.judge.measure.player import Player

NOISY = 0.1
"""Distance of the quartiles, as a part of the median, from which times are called noisy."""


def _width(found: Spread) -> float:
    return (found.high - found.low) / found.median if found.median else 0.0


def _spelled(clocks: Mapping[str, object]) -> dict[str, object]:
    """Seconds with their units; counts and the one ratio as they are."""
    spelled = {k: time_text(v) if isinstance(v, float) else v for k, v in clocks.items()}
    unheld = clocks["unheld"]
    return {**spelled, "unheld": "unknown" if unheld is None else f"{unheld:.2g}"}


@dataclass(frozen=True)
class Side:
    """Candidate or rival: figures in seconds of each round, cold and warm.

    A cold figure is one call, a warm one the median of a batch of ``calls``; ``least`` is the
    shortest warm call of all.
    """

    who: str
    figures: Mapping[str, Sequence[float]]
    data: Mapping[str, Spread]
    processes: Mapping[str, Sequence[float]]
    least: float
    busy: Mapping[str, float]
    """Processor time over the calls' time: below 1 on one thread, others used the processor."""
    host: Mapping[str, float]
    """Seconds of the host for each call, on devices, where they are in no figure."""
    calls: Sequence[int]
    warmup: Sequence[int]
    steady: bool
    clocks: Mapping[str, Mapping[str, Any]]
    """Of cold and warm batches: what each clock says that one took."""

    def record(self) -> dict[str, object]:
        return {
            "who": self.who,
            "seconds": {k: list(v) for k, v in self.figures.items()},
            "data": {k: v.record() for k, v in self.data.items()},
            "process_medians": {k: list(v) for k, v in self.processes.items()},
            "least_call": self.least,
            "busy": dict(self.busy),
            "host": dict(self.host),
            "calls": list(self.calls),
            "warmup_calls": list(self.warmup),
            "steady": self.steady,
            "clocks": {data: dict(found) for data, found in self.clocks.items()},
        }


def side_of(players: Sequence[Player]) -> Side:
    """A side, from its player in each process."""
    figures = {
        "cold": [t for p in players for t in p.cold],
        "warm": [t for p in players for t in p.warm],
    }
    return Side(
        who=players[0].who,
        figures=figures,
        data={data: spread(times) for data, times in figures.items()},
        processes={
            "cold": [spread(p.cold).median for p in players],
            "warm": [spread(p.warm).median for p in players],
        },
        least=min(p.least for p in players),
        busy={
            data: median(b) for data in figures if (b := [x for p in players for x in p.busy(data)])
        },
        host={
            data: median(h) for data in figures if (h := [x for p in players for x in p.host(data)])
        },
        calls=[p.calls for p in players],
        warmup=[p.warmup for p in players],
        steady=all(p.is_steady for p in players),
        clocks={data: players[0].clocks(data) for data in figures},
    )


@dataclass(frozen=True)
class Report:
    """A whole measurement."""

    request: Mapping[str, object]
    predicates: str
    """Hash of what agreement means."""
    versions: Mapping[str, str]
    checked: Mapping[str, str]
    """The report of the check of what was measured, where one was given."""
    source: str
    function: str
    candidate: str
    against: str
    device: str
    threads: int
    processes: int
    runs: int
    seed: int
    seed_stated: bool
    """Whether the seed was given and not drawn for this run."""
    torch: str
    sources: Mapping[str, str]
    artefacts: Mapping[str, str]
    isolation: Mapping[str, Mapping[str, str]]
    devices: Sequence[Mapping[str, str]]
    """What the device said of itself, before and after."""
    reference: Mapping[str, str]
    weights: Mapping[str, object]
    tensors: Sequence[Held]
    worst: Mapping[tuple[str, str, str], tuple[float, str]]
    draws: int
    unset: Sequence[str]
    libraries: Mapping[str, Mapping[str, str]]
    clocks: Sequence[tuple[Sequence[float], str]]
    again: Sequence[str]
    """Why processes of both sides were left out and started anew."""
    sides: Sequence[Side]
    ratio: Mapping[str, Spread]
    floors: Mapping[str, Floor]
    target: str

    def _head(self) -> dict[str, object]:
        names = ("source", "function", "candidate", "against", "device", "threads", "processes",
                 "runs", "seed", "torch")  # fmt: skip
        head = {name: getattr(self, name) for name in names}
        return {**head, "seed_is": seed_origin(self.seed_stated)}

    def record(self) -> dict[str, object]:
        return {
            "kind": "measure",
            "verdict": "measured",
            "request": dict(self.request),
            "predicates": self.predicates,
            "versions": dict(self.versions),
            "checked": dict(self.checked),
            **self._head(),
            "sources": dict(self.sources),
            "artefacts": dict(self.artefacts),
            "isolation": {who: dict(how) for who, how in self.isolation.items()},
            "devices": [dict(said) for said in self.devices],
            "noise": self.noise(),
            "notes": self._notes(),
            "reference": dict(self.reference),
            "weights": dict(self.weights),
            "tensors": [held.record() for held in self.tensors],
            "verified": [
                {"who": who, "output": output, "fn": fn, "predicate": stated, "value": value}
                for (who, output, fn), (value, stated) in self.worst.items()
            ],
            "unset": list(self.unset),
            "libraries": {who: dict(said) for who, said in self.libraries.items()},
            "clock_mhz": [{"mhz": list(mhz), "from": source} for mhz, source in self.clocks],
            "again": list(self.again),
            "sides": [side.record() for side in self.sides],
            "ratio": {data: found.record() for data, found in self.ratio.items()},
            "floor": {
                data: {
                    "target": self.target,
                    "seconds": limit.time,
                    "bounds": [b.record() for b in limit.bounds],
                    "unknown": list(limit.lacks),
                }
                for data, limit in self.floors.items()
            },
        }

    def _notes(self) -> list[str]:
        return [STATED] if self.seed_stated else []

    def noise(self) -> dict[str, str]:
        """For cold and warm data, what the machine was too noisy to tell; empty for nothing."""
        found: dict[str, str] = {}
        for data in self.floors:
            wide = [
                f"the {side.who}'s times spread by {_width(side.data[data]):.0%}"
                for side in self.sides
                if _width(side.data[data]) > NOISY
            ]
            if data in self.ratio and self.ratio[data].low < 1 < self.ratio[data].high:
                wide.append("which side is faster is not told apart")
            if wide:
                found[data] = "; ".join(wide)
        return found

    def text(self) -> str:
        lines = [line("measure", {k: v for k, v in self._head().items() if v != ""})]
        lines += [f"#   note: {note}" for note in self._notes()]
        for side in self.sides:
            for data, found in side.data.items():
                lines.append(line("time", self._time(side, data, found)))
        for data, found in self.ratio.items():
            lines.append(
                line("ratio", {"data": data, "rival/candidate": f"{found.median:.3f}",
                               "low": f"{found.low:.3f}", "high": f"{found.high:.3f}",
                               "rounds": found.count})
            )  # fmt: skip
        lines += [line("noise", {"data": d, "says": says}) for d, says in self.noise().items()]
        lines += [line("again", {"says": says}) for says in self.again]
        for side in self.sides:
            for data, found in side.clocks.items():
                lines.append(line("clocks", {"who": side.who, "data": data, **_spelled(found)}))
        for data, limit in self.floors.items():
            lines.append(line("floor", self._floor(data, limit)))
        for (who, output, _), (value, stated) in self.worst.items():
            lines.append(line("verified", {"who": who, "output": output, "fn": stated,
                                           "worst": value}))  # fmt: skip
        for family, files in (("source", self.sources), ("artefact", self.artefacts)):
            lines += [line(family, {"file": f, "sha256": d}) for f, d in files.items()]
        lines.append(line("reference", self.reference))
        if self.checked:
            lines.append(line("checked", self.checked))
        if self.weights:
            lines.append(line("weights", self.weights))
        for held in self.tensors:
            record = held.record() | {"shape": spell(held.tensor.shape)}
            lines.append(line(str(record.pop("part")), record))
        for who, said in self.libraries.items():
            lines += [line("library", {"who": who, "name": k, "says": v}) for k, v in said.items()]
        for when, said in zip(("before", "after"), self.devices, strict=False):
            lines.append(line("device", {"when": when, **said}))
        for who, how in self.isolation.items():
            lines.append(line("isolation", {"who": who, **how}))
        before, after = self.clocks[0], self.clocks[-1]
        mhz = {"before": [*before[0]], "after": [*after[0]], "from": before[1] or "unreadable"}
        lines.append(line("clock_mhz", mhz))
        if self.unset:
            lines.append(line("unset", {"variables": list(self.unset)}))
        return "\n".join(lines)

    def _time(self, side: Side, data: str, found: Spread) -> dict[str, Any]:
        each = {
            "who": side.who, "data": data, "median": time_text(found.median),
            "low": time_text(found.low), "high": time_text(found.high),
            "min": time_text(found.least if data == "cold" else side.least),
            "rounds": found.count,
            "process_medians": [time_text(t) for t in side.processes[data]],
        }  # fmt: skip
        if data in side.busy:
            each["busy"] = f"{side.busy[data]:.2f}"
        if data in side.host:
            each["host"] = time_text(side.host[data])
        if data == "warm":
            each |= {"calls": list(side.calls), "steady": "yes" if side.steady else "no"}
        return each

    def _floor(self, data: str, limit: Floor) -> dict[str, Any]:
        each: dict[str, Any] = {"data": data, "target": self.target or "none"}
        if limit.bounds:
            first = limit.bounds[0]
            reached = limit.time / self.sides[0].data[data].median
            each |= {"resource": first.resource, "time": time_text(limit.time),
                     "amount": first.amount, "unit": first.unit, "rate": first.rate,
                     "origin": first.origin, "reached": f"{reached:.3f}"}  # fmt: skip
        if limit.lacks:
            each["unknown"] = list(limit.lacks)
        return each
