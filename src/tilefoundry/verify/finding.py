"""What the verifier reports: values, never exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilefoundry.diag import Span
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.program import Issue, Stmt, Sync

FAMILIES = {
    "sync-race": "two accesses to the same bytes are not ordered",
    "sync-proxy": "an asynchronous access follows a plain one without a proxy fence",
    "sync-registers": "registers of an asynchronous instruction are touched while it runs",
    "sync-barrier": "arrivals, bytes, parities or initialisation of a barrier do not agree",
    "sync-deadlock": "a wait is never satisfied",
    "sync-drain": "an asynchronous operation is still in flight when the kernel ends",
    "sync-participants": "the participants do not fit the instruction",
    "smem-plan": "the plan of shared memory, or of tile registers, is wrong",
    "smem-capacity": "the shared memory of one CTA does not suffice",
    "view-bounds": "a view leaves its buffer",
    "read-unwritten": "memory or registers are read that nobody has written",
    "device-overlap": "writes of different participants to device memory overlap",
    "device-unwritten": "part of an output is never written",
    "parameter-written": "what the caller gave is written",
    "not-held": "a unit uses, or is to store, elements of registers that it does not hold",
    "register-plan": "the register counts of the roles are not legal",
    "sync-undecided": "the program is too large to decide",
}


@dataclass(frozen=True)
class Place:
    """A statement with its participants (as printed) and the source span, if any."""

    what: str
    who: str
    span: Span | None = None

    def __str__(self) -> str:
        at = f" at {self.span}" if self.span is not None else ""
        return f"{self.what} by {self.who}{at}" if self.who else f"{self.what}{at}"


@dataclass(frozen=True)
class Finding:
    """One defect. ``code`` is the family (a key of :data:`FAMILIES`); ``first`` and
    ``second`` the statements in question, ``missing`` the fact that could not be shown,
    ``fix`` what to write."""

    code: str
    first: Place | None
    second: Place | None
    missing: str
    fix: str

    def __str__(self) -> str:
        places = "; ".join(str(p) for p in (self.first, self.second) if p is not None)
        return f"{self.code}: {places}: {self.missing}; {self.fix}"


class Findings:
    """Findings in order of discovery, each said once, and what was not decided."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Finding] = {}
        self._notes: dict[str, None] = {}

    def add(self, code: str, first: Place | None, second: Place | None, missing: str,
            fix: str) -> None:  # fmt: skip
        assert code in FAMILIES, code
        self._found.setdefault((code, first, second), Finding(code, first, second, missing, fix))

    def note(self, line: str) -> None:
        """Something that was not decided, neither way, as a line for the head of the TIR."""
        self._notes.setdefault(line)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def who(mesh: Mesh) -> str:
    """The participants as unit ranges: ``threads 128..383``."""
    threads = sorted(mesh.units("thread")) if mesh.at("thread") else []
    if not threads:
        return "all threads"
    if len(threads) == 1:
        return f"thread {threads[0]}"
    dense = threads[-1] - threads[0] + 1 == len(threads)
    return f"threads {threads[0]}..{threads[-1]}" + ("" if dense else f" ({len(threads)})")


def what(stmt: Stmt) -> str:
    """A statement in a few words."""
    if isinstance(stmt, Issue):
        names = [v.buffer.name for v in stmt.writes]
        return f"{stmt.instr} into {', '.join(names)}" if names else stmt.instr
    if isinstance(stmt, Sync):
        if stmt.barrier is not None:
            return f"{stmt.kind} {stmt.barrier.name}"
        if stmt.kind in ("barrier", "barrier_arrive"):
            return f"{stmt.kind} {stmt.id}"
        return stmt.kind
    return type(stmt).__name__


__all__ = ["FAMILIES", "Finding", "Findings", "Place", "what", "who"]
