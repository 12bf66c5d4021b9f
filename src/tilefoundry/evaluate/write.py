"""Writes of several units: united into one destination, or refused where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.evaluate import windows
from tilefoundry.evaluate.lanes import Rows
from tilefoundry.evaluate.owners import Signs
from tilefoundry.ir.node import Node
from tilefoundry.ops.insert_slice import window


@dataclass(frozen=True)
class Writes:
    """One tile per unit: the unit's number (from 1), the row of the destination (None: it
    has no rows), the offset per axis (an int, or one per unit), the tiles (a stack, or a
    list), and what units sign with where owners are kept."""

    numbers: Rows
    rows: Rows | None
    offsets: Sequence[Any]
    tiles: Any
    signs: Signs | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def place(self, n: int) -> tuple[int, ...]:
        """Where unit ``n`` writes."""
        return tuple(int(o[n]) if isinstance(o, np.ndarray) else o for o in self.offsets)

    def of(self, row: int) -> Writes:
        """Those into one row, as writes into a destination without rows."""
        assert self.rows is not None
        held = (self.rows == row).nonzero()[0]
        offsets = [o[held] if isinstance(o, np.ndarray) else o for o in self.offsets]
        return replace(
            self,
            numbers=self.numbers[held],
            rows=None,
            offsets=offsets,
            tiles=[self.tiles[n] for n in held.tolist()],
        )


def write_in_place(dst: Any, update: Any, offsets: Sequence[int]) -> Any:
    """``dst`` with its window at ``offsets`` overwritten."""
    dst[window(offsets, update.shape, dst.shape)] = update
    return dst


def unite(
    dst: Any, writes: Writes, owner: Any, node: Node, in_place: bool = False
) -> tuple[Any, Any]:
    """The destination after all writes, and who owns each element if it has no rows.

    ``in_place``: in the memory of ``dst`` and ``owner``, which nobody else reads.

    Two writes may overlap only where their values are equal. ``owner`` is None unless
    units' trip counts differ; then writes of earlier steps by other units count too.
    A destination with rows may be a list.
    """
    if isinstance(dst, list):
        parts = [(x, writes.of(n)) for n, x in enumerate(dst)]
        return [unite(x, w, None, node, in_place)[0] if len(w) else x for x, w in parts], None
    out = dst if in_place else dst.clone()
    owner = owner if owner is None or in_place else owner.clone()
    extents = dst.shape if writes.rows is None else dst.shape[1:]
    if isinstance(writes.tiles, list) or not _on_a_grid(writes):
        _in_turn(out, extents, writes, owner, node)
    else:
        _at_once(out, extents, writes, owner, node)
    return out, owner


def _at_once(out: Any, extents: Sequence[int], writes: Writes, owner: Any, node: Node) -> None:
    """Writes that do not overlap, into ``out`` and ``owner``."""
    sizes = tuple(writes.tiles.shape[1:])
    for n in range(len(writes)) if _leaves(writes, sizes, extents) else ():
        window(writes.place(n), sizes, extents)  # refuses
    rows, *offsets = (_on(o, out.device) for o in (writes.rows, *writes.offsets))
    if owner is not None:
        assert writes.signs is not None
        strides = (1,) * len(sizes)
        held = _rowed(windows.read(owner, rows, offsets, sizes, strides), sizes)
        foreign = writes.signs.others_write(held)
        if bool(foreign.any()):
            now = _rowed(windows.read(out, rows, offsets, sizes, strides), sizes)
            lost = (foreign & ~_equal(now, writes.tiles)).reshape(len(writes), -1).any(1)
            if bool(lost.any()):
                n = int(lost.nonzero()[0])
                _disagree(writes.place(n), foreign[n], node)
        codes = _on(writes.signs.codes.astype(np.int32), out.device)
        codes = codes.reshape(-1, *(1 for _ in sizes)).expand(len(writes), *sizes)
        windows.write(owner, rows, offsets, codes)
    windows.write(out, rows, offsets, writes.tiles)


def _in_turn(out: Any, extents: Sequence[int], writes: Writes, owner: Any, node: Node) -> None:
    """Writes that may overlap, one after the other, into ``out`` and ``owner``."""
    import torch

    claim = torch.zeros(out.shape, dtype=torch.int32, device=out.device)
    for n, unit in enumerate(writes.numbers.tolist()):
        tile, place = writes.tiles[n], writes.place(n)
        row = () if writes.rows is None else (int(writes.rows[n]),)
        index = (*row, *window(place, tile.shape, extents))
        held = claim[index]
        foreign = (held != 0) & (held != unit)
        if owner is not None:
            assert writes.signs is not None
            signs = writes.signs.joined(owner[index], n)
            now = torch.where(foreign, signs, int(writes.signs.codes[n])).to(owner.dtype)
            foreign |= writes.signs.others_write(owner[index][None], [n])[0]
            owner[index] = now
        if bool(foreign.any()) and not bool(_equal(out[index][foreign], tile[foreign]).all()):
            _disagree(place, foreign, node)
        claim[index] = unit
        out[index] = tile


def _disagree(place: tuple[int, ...], foreign: Any, node: Node) -> None:
    first = foreign.nonzero()[0].tolist()
    at = tuple(o + f for o, f in zip(place, first, strict=True))
    refuse("write-overlap", node.span, name=node.name or "the result", place=at)


def _rowed(window: Any, sizes: Sequence[int]) -> Any:
    """A window that is the same for all units as a row of its own."""
    return window[None] if window.dim() == len(sizes) else window


def _equal(a: Any, b: Any) -> Any:
    """Where values are equal, NaN to NaN too."""
    import torch

    if a.dtype.is_floating_point:
        a, b = a.to(torch.float64), b.to(torch.float64)
        return (a == b) | (a.isnan() & b.isnan())
    return a == b


def _on(value: Any, device: Any) -> Any:
    import torch

    return torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value


def _leaves(writes: Writes, sizes: Sequence[int], extents: Sequence[int]) -> bool:
    """Some window is not inside the destination."""
    return any(
        bool(np.any((o < 0) | (np.asarray(o) + size > extent)))
        for o, size, extent in zip(writes.offsets, sizes, extents, strict=True)
    )


def _on_a_grid(writes: Writes) -> bool:
    """All windows of a row are different cells of one grid, so none overlap."""
    sizes = writes.tiles.shape[1:]
    if 0 in sizes:
        return False
    cells = [] if writes.rows is None else [writes.rows]
    for offset, size in zip(writes.offsets, sizes, strict=True):
        if not isinstance(offset, np.ndarray):
            continue
        if np.any((offset - offset[0]) % size):
            return False
        cells.append(offset)
    if not cells:
        return len(writes) == 1
    return len(np.unique(np.stack(cells, axis=1), axis=0)) == len(writes)
