"""Lines about single issues of a kernel for the head of its TIR."""

from __future__ import annotations

from collections.abc import Callable

from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.plans import participants
from tilefoundry.tir.program import Issue, PrimFunc, walk


def of_issues(func: PrimFunc, family: str, said: Callable[[Issue, Mesh], str | None]) -> list[str]:
    """What ``said`` finds to say of an issue and its participants, each line once, in program
    order."""
    out: dict[str, None] = {}
    for stmt, mesh in walk(func.body):
        if isinstance(stmt, Issue) and (text := said(stmt, participants(mesh, func))) is not None:
            line = f"line={stmt.span.line} " if stmt.span else ""
            out[f"{family} {line}instr=T.{stmt.instr} {text}"] = None
    return [*out]


__all__ = ["of_issues"]
