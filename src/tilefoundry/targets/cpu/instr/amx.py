"""Intel AMX: a core's tile registers, 16 rows of 64 bytes each, and their products.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18: palette 1
has 8 tiles; TDPBF16PS and TDPB{U,S}{U,S}D add A[16, k] · B[k, 16] to 16 x 16 sums of 32 bits,
k = 64 bytes of operand. A row of B holds, for each column, the neighbours along k that make up
32 bits (2 of bf16, 4 of bytes): row k / e, then column, then k % e. TILELOADD reads rows at one
distance from each other, TILESTORED writes them, TILEZERO clears; the tile configuration
follows from the tiles that a kernel uses and is loaded once by each core.
"""

from __future__ import annotations

from tilefoundry.targets.contract import (
    MeshPattern,
    MmaAtom,
    OneOf,
    ParamDef,
    SharedPattern,
    TensorPattern,
)
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.rows import rows_plan
from tilefoundry.targets.contract.spoken import CText
from tilefoundry.targets.contract.sums import Sums
from tilefoundry.targets.contract.unit import UnitInstr

SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual"
ROWS, ROW, TILE = 16, 64, 1024
"""Rows of a tile, bytes of a row and of a tile."""
EVEN_ODD = Sums((tuple(range(0, 32, 2)), tuple(range(1, 32, 2))), apart=True)
"""TDPBF16PS sums even and odd products apart."""
CORE = MeshPattern("core", (), ())


def atom(path: str, capability: str, dtypes: tuple[str, str, str], name: str, rank: int) -> MmaAtom:
    """A tile product of operands of the dtypes A and B into sums of dtype C."""
    a, b, c = dtypes
    e = 2 if a == "bf16" else 4
    k = ROWS * e
    rows = SharedPattern(((16,), (k,)), ((k,), (1,)), (16,), block=TILE, why="rows of 64 bytes")
    pairs = SharedPattern(
        ((16, e), (16,)), ((16 * e, 1), (e,)), (16,), block=TILE, why="k neighbours in 32 bits"
    )
    sums = SharedPattern(((16,), (16,)), ((16,), (1,)), (16,), block=TILE, why="rows of 64 bytes")
    return MmaAtom(
        path=path,
        capability=capability,
        execution_mesh=CORE,
        A=TensorPattern((16, k), a, "tmem", (rows,)),
        B=TensorPattern((k, 16), b, "tmem", (pairs,)),
        C=TensorPattern((16, 16), c, "tmem", (sums,)),
        parameters=(ParamDef("dtype", (OneOf("dtype", (a,)),)),),
        rank=rank,
        sums=EVEN_ODD if e == 2 else Sums((tuple(range(k)),)),
        source=f"{SDM}, volume 2, {name}",
        resources=("8 tile registers of one core, 16 rows of 64 bytes each",),
        c=CText(f"TF_{name}"),
    )


TILE_RULES = (
    "rows of 64 contiguous bytes, 16 of them at one distance make up a tile",
    "a tile register starts at a multiple of 1024 bytes of tmem; there are 8",
)

CONTRACTS = (
    atom("x86.amx.TdpBf16Ps", "amx_bf16", ("bf16", "bf16", "f32"), "TDPBF16PS", -5),
    atom("x86.amx.TdpBusd", "amx_int8", ("u8", "i8", "i32"), "TDPBUSD", -4),
    atom("x86.amx.TdpBssd", "amx_int8", ("i8", "i8", "i32"), "TDPBSSD", -3),
    atom("x86.amx.TdpBsud", "amx_int8", ("i8", "u8", "i32"), "TDPBSUD", -2),
    atom("x86.amx.TdpBuud", "amx_int8", ("u8", "u8", "i32"), "TDPBUUD", -1),
    CopyInstr(
        "x86.amx.TileLoad", (("gmem", "tmem"),), 22, rows_plan(("tmem",), ROW, ROWS), TILE_RULES,
        "amx_tile", source=f"{SDM}, volume 2, TILELOADD", level="core", align=TILE, rows=True,
        c=CText("TF_TILE_LOAD"),
    ),
    CopyInstr(
        "x86.amx.TileStore", (("tmem", "gmem"),), 23, rows_plan(("tmem",), ROW, ROWS), TILE_RULES,
        "amx_tile", source=f"{SDM}, volume 2, TILESTORED", level="core", align=TILE, rows=True,
        c=CText("TF_TILE_STORE"),
    ),
    UnitInstr(
        "x86.amx.TileZero", "full_like", ("zeros",), ("tmem",), 17, "amx_tile",
        f"{SDM}, volume 2, TILEZERO", level="core", c=CText("TF_TILE_ZERO"),
    ),
)  # fmt: skip
