"""Copies of the operands: which instruction fills the ring of each, and how it lies there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tilefoundry.ir.mesh import Mesh
from tilefoundry.plan.compute import Use
from tilefoundry.plan.site import Load
from tilefoundry.plan.tiles import SPREADS, Tile, contiguous, shared
from tilefoundry.targets.contract.copy import CopyInstr, Plan, Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.registry import contracts
from tilefoundry.targets.target import Target


@dataclass(frozen=True)
class Move:
    """One load by one instruction into a ring that lies as ``ring``."""

    load: Load
    instr: CopyInstr
    ring: Tile
    plan: Plan

    @property
    def asynchronous(self) -> bool:
        return self.instr.completion != ("none",)

    @cached_property
    def issues(self) -> int:
        """Instructions that one thread issues, by the instruction's own account."""
        for word in self.plan.text().split():
            key, _, value = word.partition("=")
            if key in ("issues", "rounds"):
                return int(value)
        return 1


def copies(target: Target, move: tuple[str, str]) -> list[CopyInstr]:
    """The target's copies from one storage to another, asynchronous ones first."""
    found = [
        c
        for c in contracts(target)
        if isinstance(c, CopyInstr) and (move in c.moves or not c.moves)
    ]
    return sorted(found, key=lambda c: (c.completion == ("none",), c.rank))


def natural(load: Load) -> int:
    """The axis of the tile that is contiguous in device memory."""
    place = Side(load.tile, load.window).place()
    if not isinstance(place, Place):
        return load.tile.rank - 1
    return contiguous(load.tile, [modes[-1][1] if modes else 1 for modes in place.modes])


def wanted(use: Use, operand: str, load: Load) -> int:
    """The axis that the instruction wants contiguous in shared memory."""
    major = use.major(operand)
    if not major:
        return natural(load)
    inner = (operand == "A") == (major == "K")  # axis 1 of (m, k), axis 0 of (k, n) is k
    axis = 1 if inner else 0
    return 1 - axis if load.flipped else axis


def moves(
    load: Load, instr: CopyInstr, fast: int, mesh: Mesh, storage: str
) -> Iterator[Move | Unmet]:
    """Legal ways of ``instr`` to fill a ring for ``load``, widest swizzle first; else what the
    first of them does not meet."""
    level = mesh.levels[-1]
    source = Side(load.tile, load.window)
    worst: Unmet | None = None
    some = False
    for span in SPREADS:
        ring = shared(load.tile, fast, span, storage)
        if ring is None:
            continue
        found = instr.judge(level, mesh, source, Side(ring.type))
        if isinstance(found, Unmet):
            worst = worst or found
            continue
        some = True
        yield Move(load, instr, ring, found)
    if not some:
        yield worst or Unmet("shape", "a tile of whole panels", f"{load.tile}")
