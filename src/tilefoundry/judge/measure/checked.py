"""What is measured is what was checked: a check's report, held to what a measurement executes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tilefoundry.diag import refuse
from tilefoundry.judge.parsed import parsed


def hold_checked(
    path: str,
    function: str,
    candidate: str,
    sources: Mapping[str, str],
    artefacts: Mapping[str, str],
) -> dict[str, str]:
    """Refuse a report that is not of a check of just this candidate, that agreed; its record.

    A kernel's artefacts are all the same files. A twin may compile for each process, under
    another name each time: of its artefacts those that both name must be the same.
    """
    try:
        data = Path(path).read_bytes()
        report = parsed(data)
        found = {
            "it is no report of a check": report["kind"] == "check",
            f"its verdict is {report['verdict']}": report["verdict"] == "agrees",
            f"it is about {report['function']}": report["function"] == function,
            f"its candidate is a {report['candidate']}": report["candidate"] == candidate,
        }
        was, then = dict(report["sources"]), dict(report["artefacts"])
    except OSError as error:
        _unchecked(path, error.strerror or "it cannot be read")
    except (ValueError, KeyError, TypeError) as error:
        _unchecked(path, f"it is no report of a check ({type(error).__name__})")
    for why, holds in found.items():
        if not holds:
            _unchecked(path, why)
    _same(path, "source", {name: was.get(name) for name in sources}, sources)
    if candidate != "kernel":
        names = then.keys() & artefacts.keys()
        then = {name: then[name] for name in names}
        artefacts = {name: artefacts[name] for name in names}
    _same(path, "artefact", then, artefacts)
    return {"report": path, "sha256": hashlib.sha256(data).hexdigest()}


def _same(path: str, what: str, then: Mapping[str, object], now: Mapping[str, object]) -> None:
    others = sorted(n for n in {*then, *now} if then.get(n) != now.get(n))
    if others:
        _unchecked(path, f"the {what} is another: {' '.join(others)}")


def _unchecked(path: str, why: str) -> NoReturn:
    refuse("measure-unchecked", None, path=path, why=why[:200])
