"""Predicates as stated: their names, the bounds that each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "allclose": ("atol", "rtol"),
    "rel_l2": ("max",),
    "cosine": ("min",),
    "max_abs": ("max",),
    "max_rel": ("max",),
    "ulp": ("max",),
    "equal": (),
    "nan_inf": (),
}
"""Each predicate and the bounds that must be stated with it."""
BLIND = frozenset({"cosine", "nan_inf"})
"""Predicates that do not see the size of values: never enough alone."""


@dataclass(frozen=True)
class Predicate:
    """One stated predicate with its bounds."""

    fn: str
    bounds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.fn, *(f"--{k} {v:g}" for k, v in self.bounds.items())])
