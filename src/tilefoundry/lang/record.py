"""The explicit record ``ShardLayout(layout=..., attrs=(...), mesh=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class RecordForm:
    """The record as written; resolved where its mesh is in force."""

    layout: Any
    attrs: tuple[Any, ...]
    mesh: Any


def shard_record(layout: Any, attrs: Sequence[Any] = (), mesh: Any = None) -> RecordForm:
    """``ShardLayout(layout=..., attrs=(S(0), B(), ...), mesh=...)``."""
    return RecordForm(layout, tuple(attrs), mesh)
