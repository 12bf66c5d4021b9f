"""The plain copy: each unit loads and stores what it is given, in the generic proxy.

Always legal; how wide the accesses are follows from the two places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilefoundry.ir.types import IMMEDIATE
from tilefoundry.targets.contract.copy import Copy, CopyInstr, Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.runs import Pieces, held_pieces, run_of, shared_pieces, width

SIZES = (16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Vectors:
    """A copy whose widths are worked out when they are asked for.

    ``read`` and ``write`` are bytes of one access of a unit, 0 for registers and for scalars
    in the instruction; ``pieces`` share a copy between two memories among the units.
    """

    copy: Copy

    @property
    def repeat(self) -> tuple[int, ...]:
        return (1,) * self.copy.source.type.rank

    @cached_property
    def pieces(self) -> Pieces | None:
        sides = self._memory(self.copy.source), self._memory(self.copy.target)
        if not all(isinstance(s, Place) for s in sides):
            return None
        places = [s for s in sides if s is not None]
        return shared_pieces(places, 0, SIZES, self.copy.units)

    def _memory(self, side: Side) -> Place | None:
        if self.copy.private(side):
            return None
        found = side.place()
        return found if isinstance(found, Place) else None

    def _width(self, side: Side, other: Side) -> int:
        memory = self._memory(side)
        if memory is None:
            return 0
        if self._memory(other) is not None:
            return self.pieces.size if self.pieces else max(1, memory.bits // 8)
        parts = held_pieces(other.type, memory) if other.type.storage != IMMEDIATE else None
        size = width(run_of(parts), [memory], SIZES) if parts is not None else 0
        return size or max(1, memory.bits // 8)

    @property
    def read(self) -> int:
        return self._width(self.copy.source, self.copy.target)

    @property
    def write(self) -> int:
        return self._width(self.copy.target, self.copy.source)

    def text(self) -> str:
        words = [f"read={self.read}B"] if self.read else []
        words += [f"write={self.write}B"] if self.write else []
        return " ".join(words)


PLACES = ("gmem", "smem", "rmem", IMMEDIATE)
"""Storages that plain loads and stores reach; others have instructions of their own."""


def plan(copy: Copy) -> Vectors | Unmet:
    for side in (copy.source, copy.target):
        if side.type.storage not in PLACES:
            want = f"sides in {', '.join(PLACES[:3])}"
            return Unmet("storage", want, f"{side.type}", "the target's own loads and stores")
    return Vectors(copy)


MOVES = ("reshard", "slice", "insert_slice", "reshape", "transpose", "repeat_interleave", "local")
"""Operations that move one value as it is."""

COPY = CopyInstr("copy", (), 20, plan, ops=MOVES)
CONTRACTS = (COPY,)
