"""The tile unit of a core: 8 strips of 4 rows, 4 sums of 16 rows, rows of 64 bytes.

A strip holds 4 steps along k of a product: row k has the 16 elements of A[:, k] or of B[k, :].
``Outer`` adds 4 outer products to a sum, one step after the other, each product and addition
rounded once. Loads and stores move rows of 64 contiguous bytes at one distance.
"""

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

MANUAL = "Rill reference manual"
ROW, STRIP, SUM = 64, 4 * 64, 16 * 64
"""Bytes of a row, of a strip, of a sum."""
CORE = MeshPattern("core", (), ())
"""One core executes it: its lanes are the vector unit's."""
RULES = ("64 contiguous bytes of memory for each row, the rows of one register at one distance",)


def down(k: int, e: int = 1) -> SharedPattern:
    """A[16, k] in a strip: ``e`` neighbours along k of each row together."""
    shape, strides = ((16,), (k // e, e)), ((e,), (16 * e, 1))
    return SharedPattern(shape, strides, (16,), block=STRIP, why="k in rows")


def across(k: int, e: int = 1) -> SharedPattern:
    """B[k, 16] in a strip: ``e`` neighbours along k of each column together."""
    shape, strides = ((k // e, e), (16,)), ((16 * e, 1), (e,))
    return SharedPattern(shape, strides, (16,), block=STRIP, why="k in rows")


SUMS = SharedPattern(((16,), (16,)), ((16,), (1,)), (16,), block=SUM, why="rows of 64 bytes")

OUTER = MmaAtom(
    path="rill.tile.Outer",
    capability="rill_tile",
    execution_mesh=CORE,
    A=TensorPattern((16, 4), "f32", "strip", (down(4),)),
    B=TensorPattern((4, 16), "f32", "strip", (across(4),)),
    C=TensorPattern((16, 16), "f32", "sum", (SUMS,)),
    parameters=(ParamDef("dtype", (OneOf("dtype", ("f32",)),)),),
    source=MANUAL,
    rank=1,
    sums=Sums(((0, 1, 2, 3),)),
    resources=("8 strips and 4 sums of one core",),
    c=CText(
        "rill_outer",
        """
static inline void rill_outer(rill_unit *u, int sum, int a, int b) {
    for (int k = 0; k < 4; k++)
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 16; n++) {
                float x;
                memcpy(&x, u->sum[sum][m] + 4 * n, 4);
                x = __builtin_fmaf(rill_f32(u, a, k, m), rill_f32(u, b, k, n), x);
                memcpy(u->sum[sum][m] + 4 * n, &x, 4);
            }
}
#define rill_outer(...) rill_outer(&rill, __VA_ARGS__)
""",
    ),
)


def move(path: str, ends: tuple[str, str], file: str, rows: int, rank: int, call: str) -> CopyInstr:
    return CopyInstr(
        path, (ends,), rank, rows_plan((file,), ROW, rows), RULES, "rill_tile", source=MANUAL,
        level="core", align=rows * ROW, rows=True, c=CText(call),
    )  # fmt: skip


CONTRACTS = (
    OUTER,
    move("rill.tile.Load", ("gmem", "strip"), "strip", 4, 22, "rill_load"),
    move("rill.tile.LoadSum", ("gmem", "sum"), "sum", 16, 23, "rill_load_sum"),
    move("rill.tile.StoreSum", ("sum", "gmem"), "sum", 16, 24, "rill_store_sum"),
    UnitInstr(
        "rill.tile.Clear", "full_like", ("zeros",), ("sum",), 17, "rill_tile", MANUAL,
        level="core", c=CText("rill_clear"),
    ),
)  # fmt: skip
