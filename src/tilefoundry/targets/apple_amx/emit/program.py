"""A program as one C file for Apple silicon: the words of its matrix coprocessor."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.emit.c import program as c
from tilefoundry.emit.c.program import EMITTERS, Machine, RegisterFile
from tilefoundry.emit.source import Source
from tilefoundry.tir.program import Program

ROWS = RegisterFile(("amx_x", "amx_y", "amx_z"), lambda end: "TF_AMX_BEGIN;", "TF_AMX_END;")
MACHINE = Machine((Path(__file__).parents[1] / "rt" / "tf_apple.h",), files=(ROWS,))


def emit_program(program: Program) -> Source:
    """The C of a program."""
    return c.emit_program(program, MACHINE)


__all__ = ["EMITTERS", "emit_program"]
