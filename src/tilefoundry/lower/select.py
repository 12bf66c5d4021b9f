"""The instruction of each operation: the author's, or the single legal default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.forms import Instr, InstrPath
from tilefoundry.ops.base import operands, seen
from tilefoundry.targets.contract.default import default
from tilefoundry.targets.contract.legality import Fit, Unmet
from tilefoundry.targets.contract.render import ENUMS
from tilefoundry.targets.contract.use import legal_use
from tilefoundry.targets.target import Target


def types_of(node: Node) -> tuple[TensorType | None, ...]:
    """Operand types as the node's units see them."""
    return tuple(None if n is None else seen(n.tensor, node.mesh) for n in operands(node))


def default_unit(target: Target, node: Node) -> str:
    """The path of the instruction by which units carry out ``node`` on what they hold."""
    found = default(target, node.op.name, node.mesh, types_of(node), node.tensor)
    if not isinstance(found, Unmet):
        return found.path
    if found.clause == "instruction":
        why = "no instruction of the target carries it out as a whole"
        refuse("lower-op", node.span, op=f"tf.{node.op.name}", why=why)
    refuse(
        "contract-unmet",
        node.span,
        instr=f"tf.{node.op.name}",
        clause=found.clause,
        expected=found.expected,
        found=found.got,
        fix=found.fix or "see `tilefoundry schedule facts` for the whole contract",
    )


def bound_atom(target: Target, node: Node, types: Sequence[TensorType]) -> tuple[Any, Fit]:
    """The matrix instruction with every parameter bound, and its fit on the operands."""
    instr: Any = node.attrs["op"]
    atom = instr.get("atom", instr)
    fit = legal_use(target, atom, node.mesh, types, node.span, operands(node))
    assert isinstance(fit, Fit)
    family = atom.path.rpartition(".")[0]
    bound: list[tuple[str, Any]] = []
    for name, value in fit.parameters.items():
        owner = ENUMS.get(name)
        bound.append((name, InstrPath(f"{family}.{owner}.{value}") if owner else value))
    return Instr(atom.path, (), tuple(bound)), fit
