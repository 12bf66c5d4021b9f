"""Softmax over long rows, one row per CTA and step, all its threads on the row.
Shows reductions over warps and lanes at once: a collective of the CTA, through smem."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 4096, 16384
CTAS, THREADS, VEC = 132, 512, 8
PER = COLS // (THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS)),
)
class SoftmaxCta:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                for row in range(cta.block, ROWS, CTAS):
                    held = tf.reshard(x[row:row + 1, :], (1, PER, THREADS @ t.lane, VEC), "rmem")
                    wide = tf.cast(held, "f32")
                    most = tf.reshard(tf.reduce(wide, (1,), True, "max"), (1, 1))
                    power = tf.exp(wide - most)
                    total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (1, 1))
                    out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        return out
