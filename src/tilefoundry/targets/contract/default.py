"""The one legal instruction of an operation that no author scheduled."""

from __future__ import annotations

from collections.abc import Sequence

from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import CopyInstr, Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import Contract, contracts
from tilefoundry.targets.contract.unit import UnitInstr
from tilefoundry.targets.target import Target


def default(
    target: Target,
    op: str,
    mesh: Mesh,
    operands: Sequence[TensorType | None],
    result: TensorType,
) -> UnitInstr | CopyInstr | Unmet:
    """The instruction that carries out ``tf.<op>`` where none was chosen, or what is unmet.

    Each operation has at most one: elementwise operations, fills and reductions one on
    registers, moves the plain copy. A contraction has none: which matrix instruction it is
    decides how its operands lie.
    """
    level = target.levels[-1]
    able = [c for c in contracts(target) if op in _ops(c)]
    # a register file of its own has instructions of its own
    found = min(able, key=lambda c: not _lives(c, result.storage), default=None)
    if found is None:
        return Unmet(
            "instruction",
            f"an instruction that carries out tf.{op} without a schedule",
            f"an unscheduled tf.{op}",
            _advice(target, op),
        )
    if isinstance(found, CopyInstr):
        source = next((t for t in operands if t is not None), result)
        answer = found.judge(level, mesh, Side(source), Side(result))
    else:
        assert isinstance(found, UnitInstr)
        answer = found.judge(level, mesh, operands, result)
    return answer if isinstance(answer, Unmet) else found


def _lives(contract: Contract, storage: str) -> bool:
    return isinstance(contract, UnitInstr) and storage in contract.storages


def _ops(contract: Contract) -> tuple[str, ...]:
    return contract.ops if isinstance(contract, (UnitInstr, CopyInstr)) else ()


def _advice(target: Target, op: str) -> str:
    atoms = [f"T.{c.path}" for c in contracts(target) if isinstance(c, MmaAtom)]
    if op != "matmul" or not atoms:
        return f"write tf.{op} with operations that have an instruction"
    return f"tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom={atoms[0]}(...)))"
