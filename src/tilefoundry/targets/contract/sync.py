"""Contracts of synchronisation: what the lowering derives, and no author schedules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SyncInstr:
    """``kind`` is the statement of TIR that it prints; ``who`` executes it, ``orders`` what
    is before and after it; ``rules`` its limits in words."""

    path: str
    kind: str
    rank: int
    who: str
    orders: str
    rules: tuple[str, ...] = ()
    capability: str | None = None
    source: str = ""
    meaning = "sync"
