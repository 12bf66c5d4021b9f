"""Apple AMX: outer products of a row of X and a row of Y, added to Z.

After corsix/amx, a public description by reverse engineering: X and Y are 8 rows of 64 bytes,
Z is 64. fma32 adds x[i] · y[j] to element i of Z row 4j + r; fma16 with f16 sums to element i
of row 2j + r; fma16 with f32 sums uses all of Z: x[i] · y[j] goes to element i / 2 of row
2j + i % 2. ldx, ldy, ldz and stz move one row as 64 contiguous bytes; ldzi and stzi join
the even and odd elements of a pair of rows, half a pair at a time.
"""

from __future__ import annotations

from tilefoundry.targets.contract import (
    Case,
    MeshPattern,
    MmaAtom,
    OneOf,
    ParamDef,
    SharedPattern,
    SwitchPattern,
    TensorPattern,
)
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.rows import rows_plan
from tilefoundry.targets.contract.sums import FMA
from tilefoundry.targets.contract.unit import UnitInstr

CORSIX = "corsix/amx, public reverse engineering"
ROW = 64
UNIT = MeshPattern("amx", (1,), (1,))


def _row(n: int, axis: int) -> SharedPattern:
    """``n`` elements along ``axis``, contiguous: one row of X or Y."""
    shape, strides = [(1,), (1,)], [(0,), (0,)]
    shape[axis], strides[axis] = (n,), (1,)
    return SharedPattern((shape[0], shape[1]), (strides[0], strides[1]), (16,), why="one row")


def _atom(path: str, n: int, dtype: str, sums: SwitchPattern | TensorPattern, acc: ParamDef,
          rank: int) -> MmaAtom:  # fmt: skip
    return MmaAtom(
        path=path,
        capability=path.replace("apple.", "").lower(),
        execution_mesh=UNIT,
        A=TensorPattern((n, 1), dtype, "amx_y", (_row(n, 0),)),
        B=TensorPattern((1, n), dtype, "amx_x", (_row(n, 1),)),
        C=sums,
        parameters=(ParamDef("dtype", (OneOf("dtype", (dtype,)),)), acc),
        rank=rank,
        sums=FMA,
        source=f"{CORSIX}, fma.md and RegisterFile.md",
        resources=("X and Y: 8 rows of 64 bytes each; Z: 64 rows of 64 bytes",),
    )


# Every fourth (second) row of Z; which, is where the buffer starts.
Z_F32 = SharedPattern(((16,), (16,)), ((64,), (1,)), (16,), block=ROW, why="one Z row in 4")
Z_F16 = SharedPattern(((32,), (32,)), ((64,), (1,)), (16,), block=ROW, why="one Z row in 2")
Z_PAIRS = SharedPattern(
    ((32,), (16, 2)), ((32,), (1, 16)), (16,), block=ROW, why="pairs of Z rows: even, odd"
)

FMA32 = _atom(
    "apple.amx.Fma32", 16, "f32", TensorPattern((16, 16), "f32", "amx_z", (Z_F32,)),
    ParamDef("acc", cases=(Case((), ("f32",)),)), 1,
)  # fmt: skip
FMA16 = _atom(
    "apple.amx.Fma16", 32, "f16",
    SwitchPattern("acc", (
        ("f32", TensorPattern((32, 32), "f32", "amx_z", (Z_PAIRS,))),
        ("f16", TensorPattern((32, 32), "f16", "amx_z", (Z_F16,))),
    )),
    ParamDef("acc", cases=(Case((), ("f32", "f16")),), default="f32"), 2,
)  # fmt: skip

ONE = ("each row of 64 bytes is contiguous in memory, at any alignment",)
PAIR = ("each pair of rows is 128 contiguous bytes: even elements in the even row",)


def _move(path: str, move: tuple[str, str], rank: int, width: int = 1) -> CopyInstr:
    loads = move[0] == "gmem"
    return CopyInstr(
        path, (move,), rank, rows_plan(("amx_x", "amx_y", "amx_z"), ROW, 1, width),
        PAIR if width > 1 else ONE, "amx.ld" if loads else "amx.st", source=f"{CORSIX}, ldst.md",
        align=ROW, rows=True,
    )  # fmt: skip


CONTRACTS = (
    FMA16,
    FMA32,
    _move("apple.amx.Ldx", ("gmem", "amx_x"), 22),
    _move("apple.amx.Ldy", ("gmem", "amx_y"), 23),
    _move("apple.amx.Ldz", ("gmem", "amx_z"), 24),
    _move("apple.amx.Ldzi", ("gmem", "amx_z"), 25, 2),
    _move("apple.amx.Stz", ("amx_z", "gmem"), 26),
    _move("apple.amx.Stzi", ("amx_z", "gmem"), 27, 2),
    UnitInstr("apple.amx.Zero", "full_like", ("zeros",), ("amx_z",), 17, "amx.fma16",
              f"{CORSIX}, fma.md: X, Y and Z inputs disabled"),
)  # fmt: skip
