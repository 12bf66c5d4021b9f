"""Loads that ask for what is loaded later: vectors of memory into registers.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, PREFETCHh: with T1 a
line is fetched into the second cache, with T0 into the first; the instruction is a hint, changes
no value and faults on no address. The processor's own prefetchers begin anew with each page, which
this hides.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.targets.contract.copy import Copy, CopyInstr, same_bits
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.cpu.instr.stream import SDM, neighbours


@dataclass(frozen=True)
class Loads:
    """A load in vectors, one element of each lane, beside which later lines are asked for."""

    bytes: int
    rank: int
    asks: int = 2
    """``prefetch`` says how many elements later, for the second cache and for the first."""

    @property
    def repeat(self) -> tuple[int, ...]:
        return (1,) * self.rank

    def text(self) -> str:
        return f"read={self.bytes}B"


def plan(copy: Copy) -> Loads | Unmet:
    """The vectors of the tile, each one contiguous in memory."""
    memory = copy.source.place()
    for found in (same_bits(copy.source, copy.target), memory):
        if isinstance(found, Unmet):
            return found
    assert isinstance(memory, Place)
    parts = neighbours(copy.target.type, memory, copy.units)
    if isinstance(parts, Unmet):
        return parts
    return Loads(copy.units * memory.bits // 8, len(memory.modes))


CODE = """
/* The line at an address, into the second cache. */
#define TF_AHEAD(p) __builtin_prefetch((p), 0, 2)
/* Into the first. */
#define TF_NEAR(p) __builtin_prefetch((p), 0, 3)
"""

CONTRACTS = (
    CopyInstr(
        "x86.LoadAhead", (("gmem", "rmem"),), 24, plan,
        ("one contiguous vector of the lanes for each register",),
        "x86_64", source=f"{SDM}, volume 2, PREFETCHh", level="lane",
        c=CText("TF_AHEAD", CODE, near="TF_NEAR"),
    ),
)  # fmt: skip
