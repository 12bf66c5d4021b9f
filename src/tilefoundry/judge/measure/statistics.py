"""Medians, quartiles and ratios of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Spread:
    """Median, quartiles (linear between samples) and least of ``count`` figures."""

    count: int
    median: float
    low: float
    high: float
    least: float

    def record(self) -> dict[str, object]:
        return {
            "count": self.count,
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "min": self.least,
        }


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one figure."""
    assert values
    if len(values) == 1:
        low = high = values[0]
    else:
        low, _, high = quantiles(values, n=4, method="inclusive")
    return Spread(len(values), median(values), low, high, min(values))


def ratios(rival: Sequence[float], candidate: Sequence[float]) -> Spread:
    """Rival's time over the candidate's, round by round: above 1 the candidate is faster."""
    return spread([r / c for r, c in zip(rival, candidate, strict=True)])


def steady(figures: Sequence[float], last: int = 3, within: float = 0.03) -> bool:
    """The ``last`` figures lie within a part of the smallest of them."""
    tail = figures[-last:]
    return len(tail) == last and max(tail) <= min(tail) * (1 + within)


def calls_for(seconds: float, each: float, most: int) -> int:
    """Calls that fill ``seconds``, of ``each`` seconds; 1 to ``most``."""
    return max(1, min(most, round(seconds / each))) if each > 0 else most
