"""The verifier of TIR: proves that synchronisation and the memory plan are right.

It shares no code with the passes that derive them, nor with the interpreter, but for one rule
that lowering refuses by as well: who holds the newest version of a tile (``tir/versions.py``).
"""

from __future__ import annotations

from tilefoundry.tir.program import PrimFunc
from tilefoundry.verify import device, differ, holders, meetings, plan
from tilefoundry.verify.classes import classes
from tilefoundry.verify.cluster import misplaced
from tilefoundry.verify.finding import FAMILIES, Finding, Findings, Place
from tilefoundry.verify.machine import Machine, TooLarge
from tilefoundry.verify.numbers import Compiler
from tilefoundry.verify.roles import layout


def verify(func: PrimFunc) -> tuple[Finding, ...]:
    """Everything that is wrong with a kernel; nothing if it is accepted."""
    return tuple(judge(func))


def judge(func: PrimFunc) -> Findings:
    """What is wrong with a kernel, with notes of what was not decided.

    The plan and the participants are judged as they stand, device memory by enumerating all
    windows, synchronisation by running one block of each kind on an abstract machine, or one
    cluster of each kind where its blocks reach each other.
    """
    findings = Findings()
    kernel = layout(func)
    compiler = Compiler()
    overlaps = plan.check(kernel, findings)
    plan.participants(kernel, findings)
    plan.held(kernel, findings)
    plan.registers(kernel, findings)
    device.check(kernel, findings, compiler)
    differ.check(kernel, findings)
    holders.check(kernel, findings)
    meetings.check(kernel, findings)
    for stmt, axes in misplaced(kernel.func):
        findings.add("sync-participants", kernel.sites[stmt].place, None,  # type: ignore[index]
                     f"it reaches along {axes}, which is no axis of a cluster's CTAs",
                     "arrange a cluster's CTAs in the mesh")  # fmt: skip
        return findings
    for blocks in classes(kernel, compiler, findings):
        try:
            Machine(kernel, blocks, overlaps, findings, compiler).run()
        except TooLarge:
            findings.add("sync-undecided", None, None, "too many statements to follow",
                         "verify it with fewer trips")  # fmt: skip
    return findings


__all__ = ["FAMILIES", "Finding", "Place", "judge", "verify"]
