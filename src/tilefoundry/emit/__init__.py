"""TIR to source text: what the emitters of all targets share.

A family's emitter is ``targets/<family>/emit/``: ``program.py`` makes the source of a
program, every other file declares in ``EMITTERS`` how its instructions are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilefoundry.diag import refuse
from tilefoundry.emit.source import Source
from tilefoundry.targets.folder import find_folder

if TYPE_CHECKING:  # what is built already has a source without any TIR
    from tilefoundry.tir.program import Program


def emit(program: Program) -> Source:
    """The source of a program for its target; refuses what the target's emitter cannot say."""
    target = next(iter(program.kernels.values())).target
    folder = find_folder(target.family)
    module = folder.module("emit.program") if folder else None
    if module is None:
        refuse("emit-target", None, id=target.id, family=target.family)
    return module.emit_program(program)


__all__ = ["Source", "emit"]
