"""Numbers with what they are: exact, a bound, or undecided with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilefoundry.ir.expr import Dim, Expr, OpenDim, Sym, substitute, symbols

EXACT, UPPER, LOWER, UNDECIDED = "exact", "upper_bound", "lower_bound", "undecided"


class Undecidable(Exception):
    """Raised where a number cannot be told; ``reason`` says why and what would tell."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Figure:
    """A number (symbolic where extents are open), its precision, and why if undecided."""

    value: Dim | None
    precision: str = EXACT
    reason: str = ""

    def __add__(self, other: Figure) -> Figure:
        if self.value is None or other.value is None:
            return self if self.value is None else other
        return Figure(self.value + other.value, joined((self.precision, other.precision)))

    @property
    def known(self) -> bool:
        """It is one integer."""
        return isinstance(self.value, int)


ZERO = Figure(0)


def undecided(reason: str) -> Figure:
    return Figure(None, UNDECIDED, reason)


def joined(precisions: Iterable[str]) -> str:
    """The precision of a sum of numbers of these precisions."""
    held = set(precisions) - {EXACT}
    if not held:
        return EXACT
    return held.pop() if len(held) == 1 else UNDECIDED


@dataclass(frozen=True)
class Binding:
    """Open extents bound to integers (``--dim``) or to a caller's extents."""

    env: Mapping[Sym, Dim]

    def __call__(self, x: Dim) -> Dim:
        if not self.env or not isinstance(x, Expr):
            return x
        return substitute(x, self.env)


def open_names(x: Dim) -> str:
    """Names of the open extents in ``x``, sorted; empty if there are none."""
    return " ".join(sorted(s.name for s in symbols(x) if isinstance(s, OpenDim)))
