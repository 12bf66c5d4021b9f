"""Which function writes an instruction, by the instruction's path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.targets.folder import Folder, find_folder
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Issue

Emitter = Callable[..., None]


@cache
def emitters(folder: Folder) -> dict[str, Emitter]:
    """Of each instruction of a family: every file of its ``emit`` folder declares some."""
    out: dict[str, Emitter] = {}
    for part, module in folder.modules("emit"):
        declared: dict[str, Emitter] = getattr(module, "EMITTERS", {})
        clash = sorted(out.keys() & declared.keys())
        if clash:
            folder.fault(part, f"T.{clash[0]} has an emitter in another file")
        out.update(declared)
    return out


def instruction(issue: Issue) -> str:
    """The path of the instruction that an issue is by: that of the atom of a tiled product."""
    return issue.attrs["atom"].path if issue.instr == TILED else issue.instr


def emitter_of(target: Any, issue: Issue) -> Emitter:
    """The function that writes ``issue``; refuses an instruction that has none."""
    path = instruction(issue)
    folder = find_folder(target.family)
    known = emitters(folder) if folder else {}
    if path not in known:
        names = " ".join(f"T.{name}" for name in sorted(known))
        refuse("emit-instruction", issue.span, name=f"T.{path}", id=target.id, known=names)
    return known[path]
