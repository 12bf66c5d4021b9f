"""What a candidate is, and what its reference was itself checked against."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from tilefoundry.diag import refuse
from tilefoundry.judge.parsed import parsed
from tilefoundry.judge.request import Request
from tilefoundry.judge.wire import Malformed


@dataclass(frozen=True)
class About:
    """What an author's file says it is: a twin or an HIR, its class, and where its module
    stands; with the HIR as data, which is judged as it is."""

    twin: bool
    name: str
    file: str
    module: str
    func: str
    target: str = ""
    program: Any = None

    @property
    def stands(self) -> tuple[str, str, str]:
        """Where the function stands that it is about."""
        return os.path.realpath(self.file), self.module, self.func

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> About:
        try:
            twin, *words, program = (record[field.name] for field in fields(cls))
        except KeyError as error:
            raise Malformed(f"a description without its {error}") from None
        if (twin is True) == bool(program):
            raise Malformed("a description of neither a twin nor an HIR")
        name, file, module, func, target = map(str, words)
        return cls(twin is True, name, file, module, func, target, program)


def reference_record(
    request: Request, about: About, held_out: bool, program: str
) -> dict[str, str]:
    """What the outputs were compared with, and what that was checked against itself; ``program``
    is the HIR's text."""
    module = f"{near(about.file)}:{about.module}"
    if request.expected:
        record = {"kind": "files", "files": ",".join(request.expected)}
        if held_out:
            record["held_out"] = module
        return record
    return {"kind": "hir", "module": module, **_checked(request, about, program)}


def _checked(request: Request, about: About, program: str) -> dict[str, str]:
    """Whether the HIR agrees with the published model, by the report of that check."""
    if request.verified is None:
        return {"against_published_model": "unverified"}
    path = request.verified
    try:
        data = Path(path).read_bytes()
        report = parsed(data)
        reference, asked = report["reference"], report["request"]
        found = {
            "no check of an HIR": report["kind"] == "check" and report["candidate"] == "hir",
            "its verdict is not agrees": report["verdict"] == "agrees",
            "it compares with no files": reference["kind"] == "files",
            f"it is about {report['function']}": report["function"].rpartition(".")[2]
            == about.func,
            f"the text of {near(about.file)} is another": sha256(about.file)
            in report["sources"].values(),
            "the program that the file made is another": report["program"]["sha256"]
            == hashlib.sha256(program.encode()).hexdigest(),
            "its constants are others": dict(asked["consts"]) == dict(request.consts or {}),
        }
    except OSError as error:
        _no_report(path, error.strerror or "it cannot be read")
    except (ValueError, KeyError, TypeError, AttributeError):
        _no_report(path, "it is no report of a check")
    for why, holds in found.items():
        if not holds:
            _no_report(path, why)
    return {
        "against_published_model": "agrees",
        "report": path,
        "report_sha256": hashlib.sha256(data).hexdigest(),
        "expected": str(reference["files"]),
    }


def _no_report(path: str, why: str) -> NoReturn:
    refuse("check-reference-report", None, path=path, why=why)


def near(path: str) -> str:
    """A path as seen from here: relative where it lies below."""
    from_here = os.path.relpath(path)
    return path if from_here.startswith(os.pardir) else from_here


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def written(path: str) -> tuple[int, ...]:
    """Which file it is, and when it was last written or replaced, by the system's clock."""
    state = os.stat(path)
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
