"""The verifier of TIR: proves that synchronisation and the memory plan are right.

It shares nothing with the passes that derive them, nor with the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilefoundry.tir.program import PrimFunc
from tilefoundry.verify.finding import FAMILIES, Finding, Findings, Place
from tilefoundry.verify.machine import Machine, TooLarge
from tilefoundry.verify.numbers import Compiler
from tilefoundry.verify.roles import layout


def verify(func: PrimFunc) -> tuple[Finding, ...]:
    """Everything that is wrong with a kernel; nothing if it is accepted."""
    findings = Findings()
    plan = layout(func)
    compiler = Compiler()
    for block in plan.blocks[:1]:
        machine = Machine(plan, block, {}, findings, compiler)
        try:
            machine.run()
        except TooLarge:
            findings.add("sync-undecided", None, None, "too many statements to follow",
                         "verify it with fewer trips")  # fmt: skip
    return tuple(findings)


__all__ = ["FAMILIES", "Finding", "Place", "verify"]
