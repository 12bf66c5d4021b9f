"""A program as one C file: cores and lanes as on any CPU, and the registers of the tile unit."""

from pathlib import Path

from tilefoundry.emit.c import program as c
from tilefoundry.emit.c.program import EMITTERS, Machine, RegisterFile

UNIT = RegisterFile(("strip", "sum"), lambda end: "RILL_BEGIN;", "RILL_END;")
MACHINE = Machine((Path(__file__).parents[1] / "rt" / "rill.h",), files=(UNIT,))


def emit_program(program):
    """The C of a program."""
    return c.emit_program(program, MACHINE)


__all__ = ["EMITTERS", "emit_program"]
