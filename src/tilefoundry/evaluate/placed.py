"""Windows that units read and write: all at once, and without races between units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilefoundry.diag import refuse
from tilefoundry.evaluate import stack, windows
from tilefoundry.evaluate.frame import Frame
from tilefoundry.evaluate.lanes import ALL, Lanes, Rows, Units
from tilefoundry.evaluate.write import Writes, unite
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import TensorType

PLACES = {"slice": "starts", "insert_slice": "offsets"}
"""The attribute that says where each unit's window begins."""


@dataclass(frozen=True)
class Batch:
    """Units evaluated together: ``rows`` of ``units`` (None: all of them).

    ``attrs`` and ``type`` are the node's with the integers that hold for each of them.
    """

    units: Units
    rows: Rows | None
    attrs: Mapping[str, Any]
    type: Any

    def __len__(self) -> int:
        return len(self.units) if self.rows is None else len(self.rows)

    def of(self, column: Any) -> Any:
        """The part of a column for these units; an int as it is."""
        if self.rows is None or not isinstance(column, np.ndarray):
            return column
        return column[self.rows]


class Placed(Frame):
    """Slices and their insertion, in a frame."""

    def starts(self, node: Node, units: Units) -> list[Any]:
        """Where each unit's window begins, per axis: an int, or an array."""
        places: Any = node.attrs[PLACES[node.op.name]]
        return [self.column(p, units, node.span, f"tf.{node.op.name}") for p in places]

    def _starts_on(self, node: Node, batch: Batch) -> list[Any]:
        """:meth:`starts` as torch indices on the device."""
        places: Any = node.attrs[PLACES[node.op.name]]
        if batch.rows is not None:
            return [self.on(batch.of(s)) for s in self.starts(node, batch.units)]
        return [self.column_on(p, batch.units) for p in places]

    def slice(self, node: Node, src: Lanes, batch: Batch) -> Any:
        """Windows of all units by one indexing; a list where a stack would be too large."""
        starts = [batch.of(s) for s in self.starts(node, batch.units)]
        sizes, count = batch.type.shape, len(batch)
        if isinstance(src.value, list) or count * type_bytes(batch.type) > stack.LIMIT:
            return [self._window(node, src, batch, starts, n) for n in range(count)]
        strides = batch.attrs["strides"] or (1,) * len(starts)
        lead = 0 if src.units is ALL else 1
        first = _outside(count, starts, sizes, strides, src.value.shape[lead:])
        if first is not None:
            self._window(node, src, batch, starts, first)  # refuses
        rows: Any = None
        if src.units is not ALL:
            rows = batch.units.places_on(src.units, self.device)
            if batch.rows is not None:
                places = batch.units.places(src.units)
                rows = self.on(batch.rows if places is None else places[batch.rows])
            rows = windows.EACH if rows is None else rows
        found = windows.read(src.value, rows, self._starts_on(node, batch), sizes, strides)
        if node.args[0] in self.chains.owned and not any(isinstance(s, np.ndarray) for s in starts):
            found = found.clone()  # a view of memory that is written in place
        return found.expand(count, *found.shape) if found.dim() == len(sizes) else found

    def _window(self, node: Node, src: Lanes, batch: Batch, starts: Any, n: int) -> Any:
        """One unit's window, a view."""
        own = tuple(int(s[n]) if isinstance(s, np.ndarray) else s for s in starts)
        places = None if src.units is ALL else batch.units.places(src.units)
        at = n if batch.rows is None else int(batch.rows[n])
        at = at if places is None else int(places[at])
        x = src.value if src.units is ALL else src.value[at]
        op: Any = node.op
        found = op.evaluate([x], {**batch.attrs, "starts": own}, batch.type)
        return found.clone() if node.args[0] in self.chains.owned else found

    def no_race(self, node: Node, src: Lanes, batch: Batch) -> None:
        """No unit may read what another unit writes without an order between them."""
        owners = self.slice(node, Lanes(ALL, src.owner), batch)
        signs = self.signs(batch.units, node.mesh)
        rows = np.arange(len(batch.units)) if batch.rows is None else batch.rows
        if isinstance(owners, list):
            each = zip(owners, rows.tolist(), strict=True)
            foreign = any(bool(signs.others_wrote(w[None], [n]).any()) for w, n in each)
        else:
            foreign = bool(signs.others_wrote(owners, rows).any())
        if foreign:
            refuse("race-read", node.span, name=node.args[0].name or "the value")

    def insert(self, node: Node, dst: Lanes, update: Lanes, units: Units) -> Lanes:
        """Writes of all units into the destination that they share."""
        rows: Rows | None = None
        if dst.units is not ALL:
            places = units.places(dst.units)
            rows = np.arange(len(units)) if places is None else places
        tiles = stack.take(update, units, None, self.device)
        if update.units is ALL:
            tiles = tiles.expand(len(units), *tiles.shape)
        signs = None if dst.owner is None else self.signs(units, node.mesh)
        writes = Writes(units.numbers() + 1, rows, self.starts(node, units), tiles, signs)
        in_place = node.args[0] in self.chains.owned
        value, owner = unite(dst.value, writes, dst.owner, node, in_place)
        return Lanes(dst.units, value, owner)

    def insert_own(self, node: Node, dst: Any, update: Any, batch: Batch, in_place: bool) -> Any:
        """Every unit's own destination with its update inserted, both stacked."""
        rows = np.arange(len(batch))
        offsets = [batch.of(o) for o in self.starts(node, batch.units)]
        return unite(dst, Writes(rows + 1, rows, offsets, update), None, node, in_place)[0]


def type_bytes(type: TensorType) -> int:
    """Bytes of one value of a type with integer extents."""
    return prod(type.shape) * max(8, type.dtype.bits) // 8  # type: ignore[arg-type]


def _outside(
    count: int, starts: Sequence[Any], sizes: Sequence[int], strides: Sequence[int], extents: Any
) -> int | None:
    """The first unit whose window leaves the tensor, None if none does."""
    bad = np.zeros(count, bool)
    for start, size, stride, extent in zip(starts, sizes, strides, extents, strict=True):
        last = start + (size - 1) * stride + 1 if size else start
        bad |= (start < 0) | ((last > extent) & (size > 0))
    return int(bad.argmax()) if bad.any() else None
