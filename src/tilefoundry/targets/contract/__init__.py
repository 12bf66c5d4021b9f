"""Instruction contracts: what an instruction demands, and whether a program meets it.

A contract is declared in the instruction's own file with :class:`MmaAtom`; one routine,
:func:`tilefoundry.targets.contract.legality.judge`, answers whether a use is legal.
"""

from tilefoundry.targets.contract.pattern import (
    Between,
    Case,
    FragmentPattern,
    MeshPattern,
    MmaAtom,
    MultipleOf,
    OneOf,
    ParamDef,
    SharedPattern,
    SwitchPattern,
    TensorPattern,
    Variable,
)

__all__ = [
    "Between",
    "Case",
    "FragmentPattern",
    "MeshPattern",
    "MmaAtom",
    "MultipleOf",
    "OneOf",
    "ParamDef",
    "SharedPattern",
    "SwitchPattern",
    "TensorPattern",
    "Variable",
]
