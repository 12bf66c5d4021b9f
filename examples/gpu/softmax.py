"""Softmax over rows, one row per warp, persistent over groups of WARPS rows.
Shows reductions over lanes: partial maxima and sums, each completed within its warp."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 8192, 2048
CTAS, WARPS, VEC = 264, 8, 8
PER = COLS // (32 * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", WARPS * 32)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("warp", "lane")) as t:
                for task in range(cta.block, ROWS // WARPS, CTAS):
                    row = task * WARPS
                    held = tf.reshard(x[row:row + WARPS, :], (WARPS @ t.warp, PER, 32 @ t.lane, VEC), "rmem")
                    wide = tf.cast(held, "f32")
                    most = tf.reshard(tf.reduce(wide, (1,), True, "max"), (WARPS @ t.warp, 1))
                    power = tf.exp(wide - most)
                    total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (WARPS @ t.warp, 1))
                    out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        return out
