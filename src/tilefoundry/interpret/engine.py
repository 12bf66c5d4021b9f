"""Work of asynchronous engines: issued at once, done at moments that the schedule picks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilefoundry.interpret.log import Record
from tilefoundry.tir.program import Issue, Sync


@dataclass(eq=False)
class Work:
    """One asynchronous instruction: ``steps`` still to do, first the reads of its source,
    then the writes of its destination."""

    number: int
    kind: str
    """``load``, ``store``, ``async`` (cp.async), ``wgmma``, or ``arrive``: a message to the
    barrier of another CTA."""
    issue: Issue | Sync
    cta: int
    steps: list[Callable[[], None]] = field(default_factory=lambda: list[Callable[[], None]]())
    records: list[Record] = field(default_factory=lambda: list[Record]())
    total: int = 2
    registers: list[tuple[Any, bool]] = field(default_factory=lambda: list[tuple[Any, bool]]())
    """Reaches in registers with whether they are written (wgmma)."""

    @property
    def read_bit(self) -> int:
        return 1 << 2 * self.number

    @property
    def write_bit(self) -> int:
        return 2 << 2 * self.number

    @property
    def bits(self) -> int:
        return 3 << 2 * self.number

    @property
    def has_read(self) -> bool:
        return len(self.steps) < self.total

    @property
    def finished(self) -> bool:
        return not self.steps
