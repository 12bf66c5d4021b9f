"""Softmax over few rows that are very long: all CTAs share them and meet twice.
Shows reductions across CTAs: a row's maximum and sum completed over threads and blocks."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 4, 102400
BLOCKS, THREADS, VEC = 25, 512, 8
PER = COLS // (BLOCKS * THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", ROWS * BLOCKS), Topology("thread", THREADS)),
)
class SoftmaxGrid:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        with Mesh(("cta",), layout=(ROWS, BLOCKS), names=("row", "block")) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                held = tf.reshard(x, (ROWS @ cta.row, BLOCKS @ cta.block, PER, THREADS @ t.lane, VEC), "rmem")
                most = tf.reshard(tf.reduce(held, (1,), True, "max"), (ROWS @ cta.row, 1))
                power = tf.exp(tf.cast(held, "f32") - tf.cast(most, "f32"))
                total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (ROWS @ cta.row, 1))
                return tf.reshard(tf.cast(power / total, "bf16"), (ROWS @ cta.row, BLOCKS @ cta.block, PER, THREADS @ t.lane, VEC), "gmem")
