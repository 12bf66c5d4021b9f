"""LayerNorm over rows that one warp brings into a ring while the others work on the row before.
Shows two sums over a row held in registers: the mean first, then the spread around it."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 32768, 4096
CTAS, THREADS, VEC, STAGES = 528, 128, 8, 4
PER = COLS // (THREADS * VEC)
EPS = 1e-5


@module(
    entry="layernorm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS + 32)),
)
class Layernorm:
    @func
    def layernorm(
        x: Tensor[(ROWS, COLS), "bf16"],
        weight: ConstTensor[(COLS,), "bf16"],
        bias: ConstTensor[(COLS,), "bf16"],
    ) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(1 + THREADS // 32, 32), names=("warp", "lane")) as t:
                with Mesh(t[1:, :], layout=(THREADS,), names=("at",)) as use:
                    gain = tf.reshard(weight, (PER, THREADS @ use.at, VEC), "rmem")
                    shift = tf.reshard(bias, (PER, THREADS @ use.at, VEC), "rmem")
                for row in range(cta.block, ROWS, CTAS):
                    with t[0, :]:
                        ring = tf.empty(Tensor[(1, COLS), "bf16", Layout((1, COLS)), "smem"], buffers=STAGES)
                        there = tf.schedule((x[row:row + 1, :], ring), op=T.copy_async_bulk())
                    with Mesh(t[1:, :], layout=(THREADS,), names=("at",)) as use:
                        wide = tf.cast(tf.reshard(there, (1, PER, THREADS @ use.at, VEC), "rmem"), "f32")
                        mean = tf.reshard(tf.reduce(wide, (1,), True, "sum"), (1, 1)) * (1.0 / COLS)
                        apart = wide - mean
                        spread = tf.reshard(tf.reduce(tf.square(apart), (1,), True, "sum"), (1, 1))
                        scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                        normed = apart * scale * tf.cast(gain, "f32") + tf.cast(shift, "f32")
                        out = tf.insert_slice(out, tf.cast(normed, "bf16"), (row, 0))
        return out
