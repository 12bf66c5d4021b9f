"""A written use of an instruction, held to its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import CopyInstr, Plan, Side
from tilefoundry.targets.contract.derived import DerivedInstr, TiledInstr
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.place import window_of
from tilefoundry.targets.contract.registry import find_contract
from tilefoundry.targets.target import Target


def legal_use(
    target: Target,
    instr: Any,
    mesh: Mesh,
    operands: Sequence[TensorType],
    span: Span | None,
    nodes: Sequence[Node | None] = (),
) -> Fit | Plan | None:
    """The fit or plan of ``instr`` on ``operands``; refuses the first clause not met.

    Operands are (accumulator, lhs, rhs) of a matrix instruction, else the operands and the
    result or destination; ``nodes`` are the values they belong to, where they are known: a
    slice lies as its parent does. None where there is nothing to repeat.
    """
    contract = find_contract(target, instr.path, span)
    level = target.levels[-1]
    assert not isinstance(contract, (DerivedInstr, TiledInstr)), contract
    if isinstance(contract, MmaAtom):
        given = _given(contract, instr, span)
        acc, lhs, rhs = operands
        _, left, right = (window_of(n) for n in (nodes or (None,) * 3))
        found = judge(contract, mesh, lhs, rhs, acc, given, (left, right))
    elif isinstance(contract, CopyInstr):
        sides = [
            Side(type, window_of(node))
            for type, node in zip(operands, (*nodes, None, None), strict=False)
        ]
        found = contract.judge(level, mesh, sides[0], sides[1])
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
