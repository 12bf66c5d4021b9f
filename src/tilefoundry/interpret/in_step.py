"""Who touched device memory, where the innermost units go in step: each core is one actor.

A core's own order holds between its statements, and nobody else reaches its register files. So
what a core touched since it last handed over is one set of elements, and a new access is held
against the sets of the other cores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilefoundry.interpret.clock import Clock
from tilefoundry.interpret.log import Actor, Log, Record, meeting
from tilefoundry.interpret.place import DEVICE, Places
from tilefoundry.interpret.report import Reports
from tilefoundry.tir.program import Buffer


@dataclass(eq=False)
class Touched:
    """What one core read or wrote of a buffer in one epoch: marks of elements, and by what."""

    marks: Any
    records: list[Record] = field(default_factory=lambda: list[Record]())


class InStep(Log):
    """As :class:`Log`, exact and independent of the data."""

    def __init__(self, places: Places, reports: Reports) -> None:
        super().__init__(places, reports)
        self.lanes = places.units.threads
        self.touched: dict[Buffer, dict[tuple[int, int, bool], Touched]] = {}
        """By (core, epoch, whether it writes)."""

    def add(self, record: Record, actor: Actor, slot: int) -> list[Record]:
        buffer = record.reach.buffer
        twins: list[Record] = []
        if buffer.storage != DEVICE or buffer not in self.places.written:
            return twins
        if not len(record.reach.element):
            return twins
        every = self.touched.setdefault(buffer, {})
        ((_, clock),) = actor.classes
        for (core, epoch, write), before in every.items():
            if core == record.cta or not (write or record.write) or self._seen(clock, core, epoch):
                continue
            if before.marks[record.reach.element].any():
                twins += self._meet(before, record, clock)
        key = (record.cta, record.epoch, record.write)
        mine = every.get(key)
        if mine is None:
            mine = every[key] = Touched(np.zeros(prod(buffer.shape), bool))
        mine.marks[record.reach.element] = True
        mine.records.append(record)
        return twins

    def _seen(self, clock: Clock, core: int, epoch: int) -> bool:
        """What the core did in that epoch happened before."""
        base = core * self.lanes
        return bool(clock.seen[base : base + self.lanes].max() >= epoch)

    def _meet(self, before: Touched, new: Record, clock: Clock) -> list[Record]:
        """Reports the first of the accesses that meets the new one; returns those of the same
        instance of a statement instead, which must have stored the same."""
        twins: list[Record] = []
        for old in before.records:
            pairs = meeting(old.reach, new.reach)
            if pairs is None:
                continue
            if old.issue is new.issue and old.instance == new.instance and old.write and new.write:
                twins.append(old)
                continue
            self.unordered(old, new, pairs[0], False, clock)
            break
        return twins
