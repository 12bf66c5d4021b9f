"""Contracts of copies: which storages they join, how they complete, and the plan that says
how a given tile is moved, or the clause that it does not meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Place, Window, place
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.unit import unmet_mesh


@dataclass(frozen=True)
class Side:
    """One end of a copy: its type as seen, the window of a stored value that it is (None: a
    whole value), and for registers the order of a unit's local modes, fastest first (mode
    indices of the layout; None: last mode fastest)."""

    type: TensorType
    window: Window | None = None
    registers: tuple[int, ...] | None = None

    def place(self) -> Place | Unmet:
        """Where it lies in memory."""
        found = place(self.type, self.window)
        if isinstance(found, Place):
            return found
        return Unmet("layout", "a tile that strides describe", found,
                     "slice at multiples of the layout's blocks")  # fmt: skip


class Plan(Protocol):
    """How one tile is moved. ``repeat`` counts the issues along each axis of the tile."""

    @property
    def repeat(self) -> tuple[int, ...]: ...

    def text(self) -> str:
        """Facts of the plan for a reader: ``key=value`` words."""
        ...


@runtime_checkable
class GivenRows(Plan, Protocol):
    """A plan in which each unit gives the address of a row of ``row_bytes``."""

    row_bytes: int

    def rows(self, team: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
        """Coordinates where the rows start that the units ``team`` give, in each issue."""
        ...


@dataclass(frozen=True)
class Copy:
    """A copy to be judged: who issues it, from where to where."""

    mesh: Mesh
    level: str
    source: Side
    target: Side
    shared: tuple[str, ...] = ("gmem", "smem")
    """Storages that have addresses which all units of the level see."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(e) for e in self.source.type.shape)  # type: ignore[arg-type]

    @property
    def units(self) -> int:
        return self.mesh.count(self.level)

    def private(self, side: Side) -> bool:
        """Whether each unit has a copy of its own of the value there: no memory address."""
        return side.type.storage not in self.shared


@dataclass(frozen=True)
class CopyInstr:
    """A move of a value: ``moves`` lists (from, to) storages, empty for any.

    ``completion``: ``none``, ``commit group``, ``mbarrier bytes`` (loads) or ``bulk group``
    (stores); ``proxy``: ``generic`` or ``async``. ``rules`` are the clauses on the tiles in
    words, ``plan`` judges them. ``align``: bytes of a buffer in shared memory, by its type.
    """

    path: str
    moves: tuple[tuple[str, str], ...]
    rank: int
    plan: Callable[[Copy], Plan | Unmet]
    rules: tuple[str, ...] = ()
    capability: str | None = None
    completion: tuple[str, ...] = ("none",)
    proxy: str = "generic"
    source: str = ""
    align: int = 1
    address: int = 1
    """Bytes that the address of a tensor in device memory must be a multiple of."""
    ops: tuple[str, ...] = ()
    """Operations that it carries out where no instruction was chosen."""
    level: str | None = None
    """The level whose units issue it; None: the innermost."""
    exchanges: bool = False
    """Units of a group (a warp) hand each other parts of what they hold: one access of all."""
    latency: str = ""
    """The fact that states how long a copy takes until it is complete; empty: none does."""
    rows: bool = False
    """One side is a register file of which it names rows or tiles of ``align`` bytes."""
    c: CText | None = None
    """How C says it, where one call does."""
    multicast: bool = False
    """A load may be delivered to the same place of several CTAs of a cluster."""
    meaning = "copy"

    def moves_text(self) -> str:
        return ", ".join(f"{a} to {b}" for a, b in self.moves) or "any to any"

    def _by(self, move: tuple[str, str]) -> str:
        """The storage to go through, if one end is one that the instruction has."""
        for source, target in self.moves:
            if target == move[1]:
                return f'tf.reshard(..., storage="{source}") first'
        through = next((b for a, b in self.moves if a == move[0]), "")
        return f'to storage="{through}" first' if through else ""

    def judge(self, level: str, mesh: Mesh, source: Side, target: Side) -> Plan | Unmet:
        """How units of ``level`` move ``source`` to ``target``, or what is not met."""
        move = source.type.storage, target.type.storage
        if self.moves and move not in self.moves:
            return Unmet("storage", self.moves_text(), f"{move[0]} to {move[1]}", self._by(move))
        level = self.level or level
        unmet = unmet_mesh(level, mesh)
        if unmet is not None:
            return unmet
        shape = source.type.shape
        open_axes = [n for n, e in enumerate(shape) if not isinstance(e, int)]
        if open_axes and self.rules:
            axis = open_axes[0]
            fix = f"slice axis {axis} into tiles of a constant size"
            return Unmet("shape", "extents that are numbers", f"axis {axis} = {shape[axis]}", fix)
        return self.plan(Copy(mesh, level, source, target))


def same_bits(a: Side, b: Side) -> Unmet | None:
    """A copy does not convert."""
    if a.type.dtype == b.type.dtype:
        return None
    return Unmet("dtype", f"{a.type.dtype} on both sides", f"{a.type.dtype} to {b.type.dtype}",
                 f'tf.cast(..., "{b.type.dtype}") before the copy')  # fmt: skip


def record(plan: Any) -> dict[str, Any]:
    """A plan's facts for JSON."""
    words: Sequence[str] = plan.text().split()
    return dict(w.split("=", 1) for w in words if "=" in w)
