"""Findings as refusals."""

from __future__ import annotations

from tilefoundry.diag import Diag, Refusal
from tilefoundry.tir.plans import unmet
from tilefoundry.tir.program import PrimFunc
from tilefoundry.verify import FAMILIES, judge


def accept(func: PrimFunc) -> tuple[str, ...]:
    """Refuses a kernel that does not verify, with every finding: each issue against its
    instruction's contract, with the buffers as they lie, then synchronisation and plan.

    Capacity refuses nothing here: it is a finding of the memory analysis, and a build's
    refusal. Returns lines for the head of the TIR: what was not decided, neither way.
    """
    diags: list[Diag] = []
    for issue, clause in unmet(func):
        fields = {
            "instr": f"T.{issue.instr}",
            "clause": clause.clause,
            "expected": clause.expected,
            "found": clause.got,
            "fix": clause.fix or "see `tilefoundry schedule facts` for the whole contract",
        }
        diags.append(Diag("contract-unmet", issue.span or func.span, fields))
    judged = judge(func)
    for found in judged:
        if found.code == "smem-capacity":
            continue
        place = found.second or found.first
        fields = {
            "kernel": func.name,
            "family": found.code,
            "means": FAMILIES[found.code],
            "missing": found.missing,
            "first": found.first or "the kernel",
            "second": found.second or "the kernel",
            "fix": found.fix,
        }
        diags.append(Diag("tir-unverified", place.span if place else func.span, fields))
    if diags:
        raise Refusal(*diags)
    return judged.notes
