"""Contracts of what the lowering writes and no author schedules: synchronisation, storage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DerivedInstr:
    """``kind`` is the statement of TIR that it prints (empty for a declaration); ``who``
    executes it, ``orders`` what is before and after it or what it states; ``rules`` its limits
    in words."""

    path: str
    kind: str
    rank: int
    who: str
    orders: str
    rules: tuple[str, ...] = ()
    capability: str | None = None
    source: str = ""
    meaning = "derived"


@dataclass(frozen=True)
class TiledInstr:
    """The matrix product of a tile by repeats of an atom."""

    path: str
    rank: int
    capability: str | None = None
    source: str = ""
    meaning = "tiled"
