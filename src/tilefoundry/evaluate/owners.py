"""Who wrote what, while units run a loop each at its own pace.

A shared destination then carries one int32 per element: a digit for each axis of a level
whose units' trips differ. A digit is 0 where nobody wrote, the writer's coordinate plus one,
or the axis' extent plus one where several of its units wrote, all the same. Units of other
levels stay in step: what a CTA wrote, its threads may read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilefoundry.evaluate.lanes import Rows, Units
from tilefoundry.ir.mesh import Axis


@dataclass(frozen=True)
class Digit:
    """One axis: its place value, the digit for several of its units, that of each writer."""

    place: int
    several: int
    own: Rows


@dataclass(frozen=True)
class Signs:
    """What units sign with: ``codes`` per unit, made of ``digits``."""

    codes: Rows
    digits: Sequence[Digit]

    def others_wrote(self, held: Any, units: Any = slice(None)) -> Any:
        """Where an element of ``held`` [units, ...] is not the unit's own to read."""
        return self._differ(held, units, alike=True)

    def others_write(self, held: Any, units: Any = slice(None)) -> Any:
        """Where a write of the unit has no order to a write of another unit."""
        return self._differ(held, units, alike=False)

    def joined(self, held: Any, n: int) -> Any:
        """The signs of elements signed as ``held`` that unit ``n`` writes too, alike."""
        import torch

        out = torch.zeros_like(held)
        for digit in self.digits:
            own = int(digit.own[n])
            same = held // digit.place % (digit.several + 1) == own
            out += torch.where(same, own, digit.several).to(held.dtype) * digit.place
        return out

    def _differ(self, held: Any, units: Any, alike: bool) -> Any:
        import torch

        out = torch.zeros(held.shape, dtype=torch.bool, device=held.device)
        for digit in self.digits:
            own = torch.from_numpy(digit.own[units]).to(held.device)
            own = own.reshape(-1, *(1 for _ in held.shape[1:]))
            signed = held // digit.place % (digit.several + 1)
            several = signed == digit.several
            out |= (signed != 0) & (
                (signed != own) & ~several if alike else (signed != own) | several
            )
        return out


class Book:
    """The place values of the digits, given out as axes come."""

    def __init__(self) -> None:
        self._places: dict[Axis, int] = {}
        self._next = 1

    def signs(self, units: Units, axes: Sequence[Axis], running: Callable[[Axis], Rows]) -> Signs:
        """What ``units`` sign with where units of ``axes`` are not in step.

        ``running``: the coordinates on an axis that execute, for one that ``units`` leave out.
        """
        codes = np.zeros(len(units), np.int64)
        digits: list[Digit] = []
        for axis in axes:
            if axis in units.axes:
                own = units.column(axis) + 1
            else:
                found = running(axis)
                one = int(found[0]) + 1 if len(found) == 1 else axis.extent + 1
                own = np.full(len(units), one, np.int64)
            digit = Digit(self._place(axis), axis.extent + 1, own)
            codes += digit.place * own
            digits.append(digit)
        return Signs(codes, digits)

    def _place(self, axis: Axis) -> int:
        if axis not in self._places:
            self._places[axis] = self._next
            self._next *= axis.extent + 2
            assert self._next < 1 << 31, self._places
        return self._places[axis]
