"""A program as one C file, by the emitter of CPUs."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.emit.source import Source
from tilefoundry.targets.cpu.emit import elementwise, moves, program, reduce
from tilefoundry.tir.program import Program

HEADER = Path(__file__).parents[1] / "rt" / "tf_apple.h"
EMITTERS = {**elementwise.EMITTERS, **moves.EMITTERS, **reduce.EMITTERS}


def emit_program(made: Program) -> Source:
    return program.emit_program(made, (*program.HEADERS, HEADER))


__all__ = ["EMITTERS", "emit_program"]
