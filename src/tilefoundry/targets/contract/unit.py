"""Contracts of instructions that each unit executes on what it holds: no fixed tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import IMMEDIATE, TensorType
from tilefoundry.targets.contract.legality import Unmet


@dataclass(frozen=True)
class UnitInstr:
    """``ops`` are the operations it implements, ``level`` the units that issue it, operands
    and result live in one of ``storages``."""

    path: str
    ops: tuple[str, ...]
    level: str
    storages: tuple[str, ...]
    rank: int
    capability: str | None = None
    source: str = ""

    def mesh_text(self) -> str:
        return f"Mesh(('{self.level}',), ComposedLayout(None, p0, Layout(((*g,),), ((*gs,),))))"

    def judge(
        self, mesh: Mesh, operands: Sequence[TensorType | None], result: TensorType
    ) -> Unmet | None:
        """None if the use is legal, else the clause that is not met."""
        if not mesh.at(self.level):
            fix = f'with Mesh(("{self.level}",), layout=(...), names=(...)) as units:'
            return Unmet("mesh", self.mesh_text(), str(mesh), fix)
        held = [t for t in (*operands, result) if t is not None and t.storage != IMMEDIATE]
        for type in held:
            if type.storage not in self.storages:
                want = " or ".join(self.storages)
                fix = f'tf.reshard(..., storage="{self.storages[-1]}")'
                return Unmet("storage", f"operands in {want}", f"{type}", fix)
        return None
