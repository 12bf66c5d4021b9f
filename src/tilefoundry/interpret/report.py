"""What an execution found wrong, as values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.tir.program import Issue, Scalar, Stmt, Sync

KINDS = (
    "race",  # two accesses, one a write, without an edge between them
    "overwritten-slot",  # the same, where what is still read gets overwritten
    "register-hazard",  # registers of a wgmma in flight are touched, or were not fenced
    "uninitialised",  # a read of what nobody wrote; an output that nobody wrote
    "bounds",  # an access outside its buffer
    "not-held",  # a register operand that the unit does not hold
    "deadlock",  # nobody can go on
    "bytes-mismatch",  # a phase expects other bytes than its copies deliver
    "barrier-misuse",  # wrong counts, phases or order of use of a barrier
    "not-drained",  # the kernel ends before its stores
    "overlap",  # storage of barriers and buffers overlaps, or is not aligned
)


@dataclass(frozen=True)
class Access:
    """One side of a report: the statement and who executed it."""

    stmt: Stmt | None
    who: str
    span: Span | None = None

    def __str__(self) -> str:
        where = f" ({self.span})" if self.span else ""
        return f"{describe(self.stmt)} by {self.who}{where}"


@dataclass(frozen=True)
class Report:
    """One finding: its kind, the accesses that meet, and in words what is missing."""

    kind: str
    says: str
    missing: str = ""
    first: Access | None = None
    second: Access | None = None
    buffer: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.says}" + (f"; {self.missing}" if self.missing else "")


class Stop(Exception):
    """Enough was found, or nothing after this can be executed sensibly."""


@dataclass
class Reports:
    """Findings in order, each once; ends the run after ``limit``."""

    limit: int = 8
    found: list[Report] = field(default_factory=lambda: list[Report]())
    _keys: set[Any] = field(default_factory=lambda: set[Any]())

    def add(self, report: Report, key: Iterable[Any] = ()) -> None:
        assert report.kind in KINDS, report.kind
        given = (report.kind, report.buffer, *key)
        if given in self._keys:
            return
        self._keys.add(given)
        self.found.append(report)
        if len(self.found) >= self.limit:
            raise Stop


def describe(stmt: Stmt | None) -> str:
    """A statement in a few words."""
    if isinstance(stmt, Issue):
        reads = [r.value if isinstance(r, Scalar) else r.buffer.name for r in stmt.reads]
        target = ", ".join(w.buffer.name for w in stmt.writes)
        return f"{stmt.instr}({', '.join(map(str, reads))}) -> {target}"
    if isinstance(stmt, Sync):
        target = f" {stmt.barrier.name}" if stmt.barrier is not None else ""
        if stmt.kind in ("barrier", "barrier_arrive"):
            target = f" {stmt.id}"
        return f"{stmt.kind}{target}"
    return "the start" if stmt is None else type(stmt).__name__.lower()


def ranges(ids: Iterable[int]) -> str:
    """Thread ids as ranges: ``threads 0..31, 64``."""
    out: list[list[int]] = []
    for one in sorted(set(ids)):
        if out and one == out[-1][1] + 1:
            out[-1][1] = one
        else:
            out.append([one, one])
    words = ", ".join(f"{a}..{b}" if b > a else str(a) for a, b in out[:4])
    more = ", ..." if len(out) > 4 else ""
    single = len(out) == 1 and out[0][0] == out[0][1]
    return f"thread{'' if single else 's'} {words}{more}"
