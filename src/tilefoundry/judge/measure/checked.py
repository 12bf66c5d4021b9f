"""What is measured is what was checked: a check's report, held to what a measurement executes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tilefoundry.diag import refuse
from tilefoundry.judge.parsed import parsed


@dataclass(frozen=True)
class Checked:
    """The report of a check that agreed."""

    path: str
    sha256: str
    function: str
    candidate: str
    sources: Mapping[str, object]
    artefacts: Mapping[str, object]

    @classmethod
    def read(cls, path: str) -> Checked:
        """The report at ``path``; refuses what is none, or one that did not agree."""
        try:
            data = Path(path).read_bytes()
            report = parsed(data)
            kind, verdict = report["kind"], report["verdict"]
            function, candidate = str(report["function"]), str(report["candidate"])
            sources, artefacts = dict(report["sources"]), dict(report["artefacts"])
        except OSError as error:
            _unchecked(path, error.strerror or "it cannot be read")
        except (ValueError, KeyError, TypeError) as error:
            _unchecked(path, f"it is no report of a check ({type(error).__name__})")
        if kind != "check":
            _unchecked(path, "it is no report of a check")
        if verdict != "agrees":
            _unchecked(path, f"its verdict is {verdict}")
        digest = hashlib.sha256(data).hexdigest()
        return cls(path, digest, function, candidate, sources, artefacts)

    def about(self, function: str, candidate: str) -> None:
        """Refuse a report of another function, or of another kind of candidate."""
        if self.function != function:
            _unchecked(self.path, f"it is about {self.function}")
        if self.candidate != candidate:
            _unchecked(self.path, f"its candidate is a {self.candidate}")

    def hold(self, sources: Mapping[str, str], artefacts: Mapping[str, str]) -> dict[str, str]:
        """Refuse other sources and other files than were checked; the record of the report.

        A kernel's artefacts are all the same files. A twin may compile for each process, under
        another name each time: of its artefacts those that both name must be the same.
        """
        self._same("source", {name: self.sources.get(name) for name in sources}, sources)
        then = self.artefacts
        if self.candidate != "kernel":
            names = then.keys() & artefacts.keys()
            then = {name: then[name] for name in names}
            artefacts = {name: artefacts[name] for name in names}
        self._same("artefact", then, artefacts)
        return {"report": self.path, "sha256": self.sha256}

    def _same(self, what: str, then: Mapping[str, object], now: Mapping[str, object]) -> None:
        others = sorted(n for n in {*then, *now} if then.get(n) != now.get(n))
        if others:
            _unchecked(self.path, f"the {what} is another: {' '.join(others)}")


def _unchecked(path: str, why: str) -> NoReturn:
    refuse("measure-unchecked", None, path=path, why=why[:200])
