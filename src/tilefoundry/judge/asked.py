"""What a request comes to for the HIR that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.judge.about import About
from tilefoundry.judge.case import Judged
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.weights import Weights


@dataclass(frozen=True)
class Understood:
    """An HIR, and what a process that read it says of its function."""

    hir: About
    described: Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What is judged, by which predicates, with which weights, on which inputs, at which
    extents."""

    signature: Signature
    program: str
    """The text of the HIR, as it is judged."""
    judged: Judged
    weights: Weights
    files: Mapping[str, str] | None
    cases: Sequence[Mapping[str, int]]
