"""A written use of a matrix instruction, held to its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import find_contract
from tilefoundry.targets.target import Target


def legal_use(
    target: Target, atom: Any, mesh: Mesh, operands: Sequence[TensorType], span: Span | None
) -> Fit:
    """The fit of ``acc += lhs · rhs`` by ``atom``; refuses the first clause that is not met.

    ``operands`` are (accumulator, lhs, rhs).
    """
    contract = find_contract(target, atom.path, span)
    assert isinstance(contract, MmaAtom), atom
    given = dict(atom.params)
    known = [p.name for p in contract.parameters]
    for name in given:
        if name not in known:
            takes = " ".join(known)
            refuse("contract-parameter", span, instr=f"T.{atom.path}", name=name, takes=takes)
    acc, lhs, rhs = operands
    found = judge(contract, mesh, lhs, rhs, acc, given)
    if isinstance(found, Unmet):
        refuse(
            "contract-unmet",
            span,
            instr=f"T.{atom.path}",
            clause=found.clause,
            expected=found.expected,
            found=found.got,
            fix=found.fix or "see `tilefoundry schedule facts` for the whole contract",
        )
    return found
