"""The sum of each row, a row per warp and step, in f32.
Shows a reduction whose result is one number a row: lanes add what they hold, then meet."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 32768, 4096
CTAS, WARPS, VEC = 1056, 8, 8
PER = COLS // (32 * VEC)


@module(
    entry="row_sum",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", WARPS * 32)),
)
class RowSum:
    @func
    def row_sum(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS,), "f32"]:
        out = tf.empty(Tensor[(ROWS,), "f32"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("warp", "lane")) as t:
                for task in range(cta.block, ROWS // WARPS, CTAS):
                    row = task * WARPS
                    held = tf.reshard(x[row:row + WARPS, :], (WARPS @ t.warp, PER, 32 @ t.lane, VEC), "rmem")
                    total = tf.reduce(tf.cast(held, "f32"), (1,), False, "sum")
                    out = tf.insert_slice(out, tf.reshard(total, (WARPS @ t.warp,)), (row,))
        return out
