"""Softmax over long rows, each brought by one warp while the others work on the row before.
Shows a ring of whole rows: loads never wait for arithmetic, and a CTA's barriers hide behind them."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 8192, 16384
CTAS, THREADS, VEC, STAGES = 132, 512, 8, 3
PER = COLS // (THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS + 32)),
)
class SoftmaxRing:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(1 + THREADS // 32, 32), names=("warp", "lane")) as t:
                for row in range(cta.block, ROWS, CTAS):
                    with t[0, :]:
                        ring = tf.empty(Tensor[(1, COLS), "bf16", Layout((1, COLS)), "smem"], buffers=STAGES)
                        there = tf.schedule((x[row:row + 1, :], ring), op=T.copy_async_bulk())
                    with Mesh(t[1:, :], layout=(THREADS,), names=("at",)) as use:
                        held = tf.reshard(there, (1, PER, THREADS @ use.at, VEC), "rmem")
                        most = tf.reshard(tf.reduce(held, (1,), True, "max"), (1, 1))
                        power = tf.exp(tf.cast(held, "f32") - tf.cast(most, "f32"))
                        total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (1, 1))
                        out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        return out
