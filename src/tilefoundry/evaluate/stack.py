"""Rows of units: stacked in one tensor, or a list where they can't or shouldn't be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilefoundry.evaluate.lanes import ALL, Lanes, Rows, Units
from tilefoundry.ops._movement import as_bits

LIMIT = 1 << 30
"""Bytes over which a value is not stacked, and units are evaluated in several batches."""


def take(lanes: Lanes, units: Units, rows: Rows | None, device: str) -> Any:
    """The value's rows for ``rows`` of ``units`` (None: all), stacked as it is."""
    if lanes.units is ALL:
        return lanes.value
    if rows is None and not isinstance(lanes.value, (tuple, list)):
        return _pick(lanes.value, units.places_on(lanes.units, device))
    places = units.places(lanes.units)
    at = rows if places is None else places if rows is None else places[rows]
    return _take(lanes.value, at, device)


def rows(lanes: Lanes, at: Rows, device: str) -> Any:
    """The value's rows ``at``, of a value that is the same for all as often as asked."""
    if lanes.units is ALL:
        return lanes.value.expand(len(at), *lanes.value.shape)
    return _take(lanes.value, at, device)


def _take(value: Any, at: Rows | None, device: str) -> Any:
    import torch

    if isinstance(value, tuple):
        return tuple(_take(v, at, device) for v in value)
    if at is None:
        return value
    if isinstance(value, list):
        return [value[i] for i in at.tolist()]
    return _pick(value, torch.from_numpy(at).to(device))


def _pick(value: Any, at: Any) -> Any:
    return value if at is None else as_bits(value).index_select(0, at).view(value.dtype)


def repeated(value: Any, count: int) -> Any:
    """A value as often as asked, each in memory of its own."""
    return as_bits(value).expand(count, *value.shape).clone().view(value.dtype)


def copied(value: Any) -> Any:
    """A value in memory of its own."""
    return [v.clone() for v in value] if isinstance(value, list) else value.clone()


def rows_of(value: Any, at: Rows) -> Any:
    """The rows ``at`` of a stack, or of a list of rows."""
    return _take(value, at, "cpu") if isinstance(value, list) else _take(value, at, value.device)


def row(value: Any, n: int) -> Any:
    """One unit's value."""
    return tuple(v[n] for v in value) if isinstance(value, tuple) else value[n]


def stacked(value: Any) -> Any:
    """A list of rows of one shape as one tensor; a stack as it is."""
    import torch

    if isinstance(value, tuple):
        return tuple(stacked(v) for v in value)
    if isinstance(value, list):
        return torch.stack([as_bits(v) for v in value]).view(value[0].dtype)
    return value


def unit_bytes(value: Any) -> int:
    """Bytes of the first unit's value."""
    if isinstance(value, tuple):
        return max(unit_bytes(v) for v in value)
    return prod(value[0].shape) * value[0].element_size()


def assemble(count: int, pieces: Sequence[tuple[Rows | None, Any]]) -> Any:
    """One value of ``count`` units from those of disjoint ``rows`` (None: all of them)."""
    import torch

    first = pieces[0][1]
    if isinstance(first, tuple):
        return tuple(
            assemble(count, [(rows, value[n]) for rows, value in pieces]) for n in range(len(first))
        )
    if len(pieces) == 1 and pieces[0][0] is None and not isinstance(first, list):
        return first
    shapes = {tuple(r.shape) for _, v in pieces for r in (v if isinstance(v, list) else (v[0],))}
    if len(shapes) == 1 and count * unit_bytes(first) <= LIMIT:
        out = first[0].new_empty((count, *first[0].shape))
        for rows, value in pieces:
            value = as_bits(stacked(value))
            if rows is None:
                return value.view(out.dtype)
            as_bits(out)[torch.from_numpy(rows).to(out.device)] = value
        return out
    listed: list[Any] = [None] * count
    for rows, value in pieces:
        for n, at in enumerate(range(count) if rows is None else rows.tolist()):
            listed[at] = value[n]
    return listed
