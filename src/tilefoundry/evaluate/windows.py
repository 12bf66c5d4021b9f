"""Windows of one tensor, one per unit: read and written by a single indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilefoundry.ops._movement import as_bits

Index = Any
"""An int for all units, or a torch int64 tensor of one per unit."""
EACH = "each"
"""In place of a row per unit: row u is unit u's."""


def read(
    x: Any, rows: Any, starts: Sequence[Index], sizes: Sequence[int], strides: Sequence[int]
) -> Any:
    """``out[u, i] = x[rows[u], starts[u] + i · strides]``, for all units u.

    ``rows`` is int64 per unit, :data:`EACH`, or None where x has no axis of rows. Windows
    lie inside x. Where they are the same for all, the result is a view of x, of the one
    window if x has no rows.
    """
    part = _fixed(x, rows, starts, sizes, strides)
    if not any(_moves(s) for s in starts):
        if rows is None or rows is EACH:
            return part
        return as_bits(part).index_select(0, rows).view(x.dtype)
    view, index = _windows(part, rows, starts, sizes, strides)
    return as_bits(view)[index].view(x.dtype)


def write(out: Any, rows: Any, starts: Sequence[Index], tiles: Any) -> None:
    """``out[rows[u], starts[u] + i] = tiles[u, i]`` in place; windows don't overlap."""
    sizes = tuple(tiles.shape[1:])
    strides = (1,) * len(sizes)
    part = as_bits(_fixed(out, rows, starts, sizes, strides))
    tiles = as_bits(tiles)
    if any(_moves(s) for s in starts):
        view, index = _windows(part, rows, starts, sizes, strides)
        view[index] = tiles
    elif rows is EACH:
        part.copy_(tiles)
    else:
        part[rows if rows is not None else ...] = tiles if rows is not None else tiles[0]


def _moves(start: Index) -> bool:
    return not isinstance(start, int)


def _fixed(
    x: Any, rows: Any, starts: Sequence[Index], sizes: Sequence[int], strides: Sequence[int]
) -> Any:
    """x narrowed along the axes where all units' windows start alike."""
    index: list[slice] = [] if rows is None else [slice(None)]
    for start, size, stride in zip(starts, sizes, strides, strict=True):
        if _moves(start):
            index.append(slice(None))
        else:
            index.append(slice(start, start + (size - 1) * stride + 1 if size else start, stride))
    return x[tuple(index)]


def _windows(
    x: Any, rows: Any, starts: Sequence[Index], sizes: Sequence[int], strides: Sequence[int]
) -> tuple[Any, tuple[Any, ...]]:
    """Every window of x along the axes that move, as a view, and the index of the units'.

    The view is [rows, first elements on each moving axis ..., window ...]: its elements
    are those of x, many times over.
    """
    import torch

    lead = 0 if rows is None else 1
    moving = [n for n, s in enumerate(starts) if _moves(s)]
    shape, steps = list(x.shape[:lead]), list(x.stride()[:lead])
    for n in moving:
        span = (sizes[n] - 1) * strides[n] + 1 if sizes[n] else 0
        shape.append(x.shape[n + lead] - span + 1)
        steps.append(x.stride(n + lead))
    for n, size in enumerate(sizes):
        shape.append(size)
        steps.append(x.stride(n + lead) * (strides[n] if n in moving else 1))
    at = [starts[n] for n in moving]
    if rows is EACH:
        at.insert(0, torch.arange(x.shape[0], device=x.device))
    elif rows is not None:
        at.insert(0, rows)
    return x.as_strided(shape, steps, x.storage_offset()), tuple(at)
