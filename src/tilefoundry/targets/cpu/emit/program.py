"""A program as one C file for x86-64: its features, vectors and tiles."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.emit.c import program as c
from tilefoundry.emit.c.program import EMITTERS, Machine, RegisterFile
from tilefoundry.emit.source import Source
from tilefoundry.targets.cpu.instr.amx import TILE
from tilefoundry.tir.program import Program

OPTIONS = {
    "x86_64": "-march=x86-64", "avx": "-mavx", "avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c",
    "avx512f": "-mavx512f", "avx512bw": "-mavx512bw", "avx512dq": "-mavx512dq",
    "avx512vl": "-mavx512vl", "avx512_vnni": "-mavx512vnni", "avx512_bf16": "-mavx512bf16",
    "avx512_fp16": "-mavx512fp16", "amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16",
    "amx_int8": "-mamx-int8", "avx_vnni": "-mavxvnni",
}  # fmt: skip
TILES = RegisterFile(("tmem",), lambda end: f"TF_TILES_BEGIN({-(-end // TILE)});", "TF_TILES_END;")
MACHINE = Machine((Path(__file__).parents[1] / "rt" / "tf_matrix.h",), OPTIONS, (TILES,))


def emit_program(program: Program) -> Source:
    """The C of a program."""
    return c.emit_program(program, MACHINE)


__all__ = ["EMITTERS", "emit_program"]
