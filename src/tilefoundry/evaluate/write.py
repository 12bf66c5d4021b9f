"""Writes of several units into one destination: united, or refused where they disagree."""

from __future__ import annotations

from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.node import Node
from tilefoundry.ops.insert_slice import window

Write = tuple[int, tuple[int, ...], Any]
"""Unit number (from 1), offsets, the written tile."""


def unite(dst: Any, writes: list[Write], owner: Any, node: Node) -> tuple[Any, Any]:
    """The destination after all writes, and who owns each element.

    Two writes may overlap only where their values are equal. ``owner`` is None unless
    units' trip counts differ; then writes of earlier steps by other units count too.
    """
    out = dst.clone()
    owner = None if owner is None else owner.clone()
    disjoint = owner is None and _on_a_grid([(o, tuple(v.shape)) for _, o, v in writes])
    claim = owner
    if claim is None and not disjoint:
        import torch

        claim = torch.zeros(dst.shape, dtype=torch.int32, device=dst.device)
    for unit, offsets, value in writes:
        index = window(offsets, value.shape, dst.shape)
        if claim is not None:
            held = claim[index]
            foreign = (held != 0) & (held != unit)
            if bool(foreign.any()) and not _same(out[index][foreign], value[foreign]):
                first = foreign.nonzero()[0].tolist()
                place = tuple(o + f for o, f in zip(offsets, first, strict=True))
                refuse("write-overlap", node.span, name=node.name or "the result", place=place)
            claim[index] = unit
        out[index] = value
    return out, owner


def _same(a: Any, b: Any) -> bool:
    import torch

    if a.dtype.is_floating_point:
        a, b = a.to(torch.float64), b.to(torch.float64)
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return bool((a == b).all())


def _on_a_grid(boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    """All windows are different cells of one grid, so none overlap."""
    if not boxes:
        return True
    sizes = {size for _, size in boxes}
    if len(sizes) != 1 or any(n == 0 for n in next(iter(sizes))):
        return False
    (size,) = sizes
    base = boxes[0][0]
    cells = set()
    for offsets, _ in boxes:
        for o, b, n in zip(offsets, base, size, strict=True):
            if (o - b) % n:
                return False
        cells.add(offsets)
    return len(cells) == len(boxes)
