"""What an operand's buffer must be aligned to, for allocation."""

from __future__ import annotations

from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.pattern import MmaAtom, SwitchPattern, TensorPattern
from tilefoundry.targets.contract.registry import Contract


def alignment(contract: Contract | None, operand: TensorType) -> int:
    """Bytes that the start of ``operand``'s buffer must be a multiple of.

    A swizzle is a function of the address, so a swizzled buffer starts at a multiple of its
    period (1024, 512 or 256 bytes for spans of 128, 64, 32), whoever uses it.
    """
    least = max(1, operand.dtype.bits // 8)
    if isinstance(contract, CopyInstr) and operand.storage == "smem":
        least = max(least, contract.align)
    if isinstance(contract, MmaAtom):
        least = max(least, *(_pattern(contract, n, operand.storage) for n in "ABC"))
    layout = operand.layout
    if layout is not None and layout.swizzle is not None:
        least = max(least, layout.swizzle.period)
    return least


def _pattern(atom: MmaAtom, name: str, storage: str) -> int:
    """The alignment of operand ``name`` where it may live in ``storage``."""
    todo: list[SwitchPattern | TensorPattern] = [getattr(atom, name)]
    most = 1
    while todo:
        pattern = todo.pop()
        if isinstance(pattern, SwitchPattern):
            todo += [inner for _, inner in pattern.patterns]
        elif pattern.storage == storage:
            most = max(most, pattern.align)
    return most
