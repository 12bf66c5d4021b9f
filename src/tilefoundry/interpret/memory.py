"""The memories of one execution: bytes of shared memory and of register files per CTA (core),
registers per thread, device tensors; and for each element who wrote it, if anybody did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilefoundry.interpret.log import Reach
from tilefoundry.interpret.place import DEVICE, REGISTERS, SHARED, Places
from tilefoundry.interpret.report import Access, Report, Reports, describe, ranges
from tilefoundry.ops.base import torch_dtype
from tilefoundry.tir.program import Buffer, Issue, PrimFunc, View

EACH = {1: 0x01, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}
"""Words with 1 in every byte."""
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def poison(dtype: torch.dtype) -> Any:
    """A value that no program computes with unnoticed."""
    if dtype == torch.bool:
        return True
    return float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max


@dataclass(eq=False)
class Side:
    """One operand of an issue for some threads: ``reach`` of what lies inside the buffer;
    ``where`` those items are among all ``count`` (None: everywhere), the rest is the view's
    fill."""

    view: View
    reach: Reach
    count: int
    where: Any = None


class Memory:
    """All memories; ``reports`` takes reads of what nobody wrote."""

    def __init__(self, func: PrimFunc, places: Places, tensors: dict[Buffer, torch.Tensor],
                 reports: Reports) -> None:  # fmt: skip
        self.func, self.places, self.reports = func, places, reports
        self.tensors = {b: t.reshape(-1) for b, t in tensors.items()}
        self.filled: dict[Any, Any] = {
            b: np.full(t.numel(), b.role == "in") for b, t in self.tensors.items()
        }
        sizes = dict.fromkeys(places.addressed, 0)
        for buffer in places.used:
            if buffer.storage in sizes and buffer.offsets:
                top = max(buffer.offsets) + self._top(buffer)
                sizes[buffer.storage] = max(sizes[buffer.storage], top)
        ctas = places.units.ctas
        shapes = {x: (ctas, -(-size // 16) * 16) for x, size in sizes.items()}
        self.bytes = {x: torch.full(at, 0xFF, dtype=torch.uint8) for x, at in shapes.items()}
        self.writer = {x: np.zeros(at, np.uint8) for x, at in shapes.items()}
        """By storage: the number of the buffer through which each byte was written, or 0."""
        self.registers: dict[tuple[int, Buffer], torch.Tensor] = {}

    def file(self, cta: int, buffer: Buffer) -> tuple[torch.Tensor, Any]:
        """Registers of all threads for a buffer, flat, and which are written."""
        key = (cta, buffer)
        if key not in self.registers:
            size = self.places.units.threads * self.places.held(buffer).count
            dtype = torch_dtype(buffer.dtype)
            self.registers[key] = torch.full((size,), poison(dtype), dtype=dtype)
            self.filled[key] = np.zeros(size, bool)
        return self.registers[key], self.filled[key]

    def _spot(self, reach: Reach, slot: int) -> tuple[Any, Any]:
        """Indices into the storage, as numpy and as torch."""
        found = reach.spots.get(slot)
        if found is None:
            buffer = reach.buffer
            if buffer.storage == REGISTERS:
                held = self.places.held(buffer)
                at = reach.thread * held.count + held.register[reach.element]
            elif buffer.storage != DEVICE:
                wide = buffer.dtype.bits // 8
                at = (self.places.address(buffer)[reach.element] + buffer.offsets[slot]) // wide
            else:
                at = reach.element
            at = np.ascontiguousarray(at)
            found = reach.spots[slot] = (at, torch.from_numpy(at))
        return found

    def _storage(self, cta: int, buffer: Buffer) -> tuple[torch.Tensor, Any, Any]:
        """(values, marks, mark of a written element) of where a buffer lies."""
        if buffer.storage == REGISTERS:
            values, marks = self.file(cta, buffer)
            return values, marks, True
        if buffer.storage != DEVICE:
            wide = buffer.dtype.bits // 8
            values = self.bytes[buffer.storage][cta].view(torch_dtype(buffer.dtype))
            marks = self.writer[buffer.storage][cta].view(WORDS[wide])
            return values, marks, EACH[wide] * self.places.numbers[buffer]
        return self.tensors[buffer], self.filled[buffer], True

    def read(self, cta: int, slot: int, side: Side, issue: Issue) -> torch.Tensor:
        """The values of an operand, one per item; reports those that nobody wrote."""
        buffer = side.view.buffer
        values, marks, mark = self._storage(cta, buffer)
        at, index = self._spot(side.reach, slot)
        got = values[index]
        written = marks[at] == mark
        if not written.all():
            self._unwritten(cta, slot, side.reach, issue, ~written, marks[at])
        if side.where is None:
            return got
        out = torch.full((side.count,), side.view.fill or 0, dtype=got.dtype)
        out[side.where] = got
        return out

    def write(self, cta: int, slot: int, side: Side, values: torch.Tensor) -> None:
        buffer = side.view.buffer
        storage, marks, mark = self._storage(cta, buffer)
        at, index = self._spot(side.reach, slot)
        kept = values if side.where is None else values[side.where]
        storage[index] = kept.to(storage.dtype)
        marks[at] = mark

    def forget(self, cta: int, slot: int, side: Side) -> None:
        """The elements hold nothing from here on."""
        storage, marks, _ = self._storage(cta, side.view.buffer)
        at, index = self._spot(side.reach, slot)
        storage[index] = poison(storage.dtype)
        marks[at] = 0

    def same(self, cta: int, slot: int, side: Side, values: torch.Tensor,
             among: Reach | None = None) -> bool:  # fmt: skip
        """The elements (those of ``among``) hold ``values`` already, bit by bit."""
        storage, _, _ = self._storage(cta, side.view.buffer)
        _, index = self._spot(side.reach, slot)
        given = values if side.where is None else values[side.where]
        if among is not None:
            keep = torch.from_numpy(np.isin(side.reach.element, among.elements))
            return bits_equal(storage[index[keep]], given[keep])
        return bits_equal(storage[index], given)

    def _unwritten(self, cta: int, slot: int, reach: Reach, issue: Issue, bad: Any,
                   marks: Any) -> None:  # fmt: skip
        """Reads of what nobody wrote, or of what was written through another buffer since."""
        buffer = reach.buffer
        lost = [] if buffer.storage in (DEVICE, REGISTERS) else np.flatnonzero(bad & (marks != 0))
        if len(lost):
            bad = np.isin(np.arange(len(bad)), lost)
        kind, what = ("overlap", "whose bytes ") if len(lost) else ("uninitialised", "that ")
        first = int(reach.element[bad][0])
        at = tuple(int(x) for x in np.unravel_index(first, buffer.shape)) if buffer.shape else ()
        thread = np.broadcast_to(reach.thread, reach.element.shape)[bad]
        where = f" slot {slot}" if buffer.slots > 1 else ""
        who = f"{ranges(thread.tolist())} of CTA {cta}"
        ending = what + (self._others(buffer, slot) if len(lost) else "nobody wrote")
        says = f"{describe(issue)} reads {buffer.name}{where} {list(at)} {ending}, by {who}"
        report = Report(kind, says, second=Access(issue, who, issue.span), buffer=buffer.name)
        self.reports.add(report, (issue,))

    def close(self) -> None:
        """Every element of every output is written."""
        for buffer in self.func.params:
            marks = self.filled[buffer]
            if buffer.role == "out" and not marks.all():
                first = int(np.flatnonzero(~marks)[0])
                at = [int(x) for x in np.unravel_index(first, buffer.shape or (1,))]
                says = (
                    f"{int((~marks).sum())} elements of {buffer.name} are never written, {at} first"
                )
                self.reports.add(Report("uninitialised", says, buffer=buffer.name))

    def _top(self, buffer: Buffer) -> int:
        """Bytes that one slot spans."""
        return int(self.places.address(buffer).max(initial=0)) + buffer.dtype.bits // 8

    def _others(self, buffer: Buffer, slot: int) -> str:
        """The buffers that share bytes with a slot, as who overwrote it."""
        lo, top = buffer.offsets[slot], buffer.offsets[slot] + self._top(buffer)
        names = [
            b.name for b in self.places.used
            if b is not buffer and b.storage == buffer.storage
            and any(at < top and lo < at + self._top(b) for at in b.offsets)
        ]  # fmt: skip
        return f"a write of {' or '.join(names)} replaced"

    def layout(self) -> None:
        """Reports storage of barriers that buffers share or that leaves the allocation."""
        for barrier in self.func.barriers:
            lo, hi = barrier.offset, barrier.offset + 8 * barrier.slots
            if hi > self.func.shared_bytes or lo % 8:
                says = f"barrier {barrier.name} at byte {lo} of {self.func.shared_bytes}"
                self.reports.add(Report("overlap", says, buffer=barrier.name))
            for other in self.func.barriers:
                if (
                    other is not barrier
                    and other.offset < hi
                    and lo < other.offset + 8 * other.slots
                ):
                    names = sorted((barrier.name, other.name))
                    says = f"barriers {names[0]} and {names[1]} share bytes"
                    self.reports.add(Report("overlap", says), names)
            for buffer in self.places.used:
                if buffer.storage != SHARED:
                    continue
                if any(at < hi and lo < at + self._top(buffer) for at in buffer.offsets):
                    says = f"{buffer.name} lies over barrier {barrier.name}"
                    self.reports.add(Report("overlap", says, buffer=buffer.name), (barrier,))
        for buffer in self.places.used:
            if buffer.storage in self.places.addressed:
                top, limit = self._top(buffer), self._limit(buffer.storage)
                if any(at % buffer.align for at in buffer.offsets):
                    says = f"{buffer.name} is not aligned to {buffer.align} bytes"
                    self.reports.add(Report("overlap", says, buffer=buffer.name), ("align",))
                if limit is not None and any(at + top > limit for at in buffer.offsets):
                    says = f"{buffer.name} leaves the {limit} bytes of {buffer.storage}"
                    self.reports.add(Report("bounds", says, buffer=buffer.name))
                assert len(buffer.offsets) == buffer.slots, buffer.name

    def _limit(self, storage: str) -> int | None:
        """Bytes that buffers may lie in: those that the kernel asks for, of a register file all
        that there are."""
        if storage == SHARED:
            return self.func.shared_bytes
        capacity = self.func.target.storages[storage].capacity.value
        return None if capacity is None else int(capacity)


def bits_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit by bit, NaN included."""
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(torch.equal(a.contiguous().view(words), b.contiguous().view(words)))
