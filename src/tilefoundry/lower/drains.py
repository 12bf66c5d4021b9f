"""Loops that let no asynchronous group stay in flight: right, but nothing overlaps."""

from __future__ import annotations

from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import For, Issue, PrimFunc, Stmt, Sync, When, With

WAITS = {"wgmma_wait": "wgmma", "async_wait": "async"}
"""Waits of a thread for its own groups, and the completion that those have."""


def notes(func: PrimFunc) -> list[str]:
    """A line for each loop that, in each step, issues groups and waits for all of them."""
    out: list[str] = []
    _visit(func.body, out)
    return out


def _visit(body: tuple[Stmt, ...], out: list[str]) -> tuple[set[str], list[Sync]]:
    """What is issued and waited for in a body, loops inside it left out."""
    issued: set[str] = set()
    waits: list[Sync] = []
    for stmt in body:
        if isinstance(stmt, Issue):
            issued.add(effects(stmt).completion)
        elif isinstance(stmt, Sync) and stmt.kind in WAITS:
            waits.append(stmt)
        elif isinstance(stmt, (With, When)):
            more, others = _visit(stmt.body, out)
            issued |= more
            waits += others
        elif isinstance(stmt, For):
            inside, drained = _visit(stmt.body, out)
            for wait in drained:
                if wait.pending == 0 and WAITS[wait.kind] in inside:
                    line = f"line={stmt.span.line} " if stmt.span else ""
                    why = f' for="{wait.why}"' if wait.why else ""
                    out.append(f"drain {line}loop={stmt.var} wait={wait.kind} in_flight=0{why}")
    return issued, waits


__all__ = ["notes"]
