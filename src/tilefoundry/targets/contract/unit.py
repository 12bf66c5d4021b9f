"""Contracts of instructions without a fixed tile: each unit works on what it holds, or moves
a value between storages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import IMMEDIATE, TensorType
from tilefoundry.targets.contract.legality import Unmet


def any_units(level: str) -> str:
    """The pattern of any arrangement of units of one level."""
    return f"Mesh(('{level}',), ComposedLayout(None, p0, Layout(((*g,),), ((*gs,),))))"


def unmet_mesh(level: str, mesh: Mesh) -> Unmet | None:
    """Units of ``level`` must be in force."""
    if mesh.at(level):
        return None
    fix = f'with Mesh(("{level}",), layout=(...), names=(...)) as units:'
    return Unmet("mesh", any_units(level), str(mesh), fix)


@dataclass(frozen=True)
class UnitInstr:
    """``ops`` are the operations it can carry out, ``meaning`` the one that its parameters
    are those of; operands and result live in one of ``storages``."""

    path: str
    meaning: str
    ops: tuple[str, ...]
    storages: tuple[str, ...]
    rank: int
    capability: str | None = None
    source: str = ""

    def judge(
        self, level: str, mesh: Mesh, operands: Sequence[TensorType | None], result: TensorType
    ) -> Unmet | None:
        """None if units of ``level`` may issue it, else the clause that is not met."""
        unmet = unmet_mesh(level, mesh)
        if unmet is not None:
            return unmet
        for type in (*operands, result):
            if type is not None and type.storage not in (*self.storages, IMMEDIATE):
                want = " or ".join(self.storages)
                fix = f'tf.reshard(..., storage="{self.storages[-1]}")'
                return Unmet("storage", f"operands in {want}", f"{type}", fix)
        return None


@dataclass(frozen=True)
class CopyInstr:
    """A move of a value: ``moves`` lists (from, to) storages, empty for any.

    ``completion``: ``none``, ``commit group``, ``mbarrier bytes`` (loads) or ``bulk group``
    (stores); ``proxy``: ``generic`` or ``async``.
    """

    path: str
    moves: tuple[tuple[str, str], ...]
    rank: int
    capability: str | None = None
    completion: tuple[str, ...] = ("none",)
    proxy: str = "generic"
    source: str = ""
    meaning = "copy"

    def moves_text(self) -> str:
        return ", ".join(f"{a} to {b}" for a, b in self.moves) or "any to any"

    def judge(self, level: str, mesh: Mesh, source: str, target: str) -> Unmet | None:
        """None if units of ``level`` may copy from storage ``source`` to ``target``."""
        if self.moves and (source, target) not in self.moves:
            return Unmet("storage", self.moves_text(), f"{source} to {target}")
        return unmet_mesh(level, mesh)
