"""Loops over what a thread holds: rolled with ``i`` where indices follow from it, else written
out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tilefoundry.emit.writer import Writer
from tilefoundry.targets.cuda.emit.text import fit


class NoFit(Exception):
    """An index does not follow from the loop's variable by digits."""


class At(Protocol):
    """One turn of a loop, or all of them: ``of`` says a number that differs from turn to
    turn, ``same`` one that must not."""

    def of(self, table: Sequence[int]) -> str: ...
    def same(self, table: Sequence[int]) -> int: ...


class Turn:
    """Turn ``n``."""

    def __init__(self, n: int) -> None:
        self.n = n

    def of(self, table: Sequence[int]) -> str:
        return str(table[self.n])

    def same(self, table: Sequence[int]) -> int:
        return table[self.n]


class Rolled:
    """All turns, as an expression of the loop's variable."""

    def __init__(self, var: str) -> None:
        self.var = var

    def of(self, table: Sequence[int]) -> str:
        text = fit(table, self.var)
        if text is None:
            raise NoFit
        return text

    def same(self, table: Sequence[int]) -> int:
        if any(x != table[0] for x in table):
            raise NoFit
        return table[0]


def each(out: Writer, turns: int, body: Callable[[At], None]) -> None:
    """``body`` for each of ``turns``, in an unrolled loop where its indices allow."""
    if turns == 1:
        body(Turn(0))
        return
    mark = len(out.lines)
    try:
        out.line("#pragma unroll")
        with out.block(f"for (int i = 0; i < {turns}; i++)"):
            body(Rolled("i"))
    except NoFit:
        del out.lines[mark:]
        for n in range(turns):
            body(Turn(n))


__all__ = ["At", "NoFit", "Rolled", "Turn", "each"]
