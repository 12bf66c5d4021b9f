"""Which function writes an instruction, by the instruction's path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.targets.contract.registry import TARGETS
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Issue

Emitter = Callable[..., None]


@cache
def emitters(family: str) -> dict[str, Emitter]:
    """Of each instruction of a family: every file of its ``emit`` folder declares some."""
    out: dict[str, Emitter] = {}
    for path in sorted((TARGETS / family / "emit").glob("[a-z]*.py")):
        module = import_module(f"tilefoundry.targets.{family}.emit.{path.stem}")
        declared: dict[str, Emitter] = getattr(module, "EMITTERS", {})
        clash = out.keys() & declared.keys()
        assert not clash, clash
        out.update(declared)
    return out


def has_emitter(family: str) -> bool:
    return (TARGETS / family / "emit" / "program.py").is_file()


def emitter_of(target: Any, issue: Issue) -> Emitter:
    """The function that writes ``issue``; refuses an instruction that has none."""
    path = issue.attrs["atom"].path if issue.instr == TILED else issue.instr
    known = emitters(target.family)
    if path not in known:
        names = " ".join(f"T.{name}" for name in sorted(known))
        refuse("emit-instruction", issue.span, name=f"T.{path}", id=target.id, known=names)
    return known[path]
