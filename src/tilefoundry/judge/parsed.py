"""JSON that others wrote: what it says must be one thing to every reader."""

from __future__ import annotations

import json
from typing import Any


def parsed(data: bytes | str) -> Any:
    """What JSON says; ValueError for what is none, is nested beyond reason, or names a thing
    twice in one object."""
    try:
        return json.loads(data, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it names a thing twice")
    return found
