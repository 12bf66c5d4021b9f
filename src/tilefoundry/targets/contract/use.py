"""A written use of an instruction, held to its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import find_contract
from tilefoundry.targets.contract.unit import CopyInstr
from tilefoundry.targets.target import Target


def legal_use(
    target: Target, instr: Any, mesh: Mesh, operands: Sequence[TensorType], span: Span | None
) -> Fit | None:
    """The fit of ``instr`` on ``operands``; refuses the first clause that is not met.

    Operands are (accumulator, lhs, rhs) of a matrix instruction, else the operands and the
    result or destination. None where there is no tile to repeat.
    """
    contract = find_contract(target, instr.path, span)
    level = target.levels[-1]
    if isinstance(contract, MmaAtom):
        given = _given(contract, instr, span)
        acc, lhs, rhs = operands
        found = judge(contract, mesh, lhs, rhs, acc, given)
    elif isinstance(contract, CopyInstr):
        source, destination = operands
        found = contract.judge(level, mesh, source.storage, destination.storage)
    else:
        *inputs, result = operands
        found = contract.judge(level, mesh, inputs, result)
    if isinstance(found, Unmet):
        refuse(
            "contract-unmet",
            span,
            instr=f"T.{instr.path}",
            clause=found.clause,
            expected=found.expected,
            found=found.got,
            fix=found.fix or "see `tilefoundry schedule facts` for the whole contract",
        )
    return found


def _given(contract: MmaAtom, atom: Any, span: Span | None) -> dict[str, Any]:
    """The parameters written on the atom; refuses one that the contract does not have."""
    given = dict(atom.params)
    known = [p.name for p in contract.parameters]
    for name in given:
        if name not in known:
            takes = " ".join(known)
            refuse("contract-parameter", span, instr=f"T.{atom.path}", name=name, takes=takes)
    return given
