"""Softmax, a row for each CTA, its numbers held as bf16: what is needed twice is computed twice.
Shows that fewer registers put more CTAs on a processor, and more loads in flight."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 8192, 16384
THREADS, VEC = 256, 8
PER = COLS // (THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", ROWS), Topology("thread", THREADS)),
)
class SoftmaxCta:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        with Mesh(("cta",), layout=(ROWS,), names=("row",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                held = tf.reshard(x, (ROWS @ cta.row, PER, THREADS @ t.lane, VEC), "rmem")
                most = tf.cast(tf.reshard(tf.reduce(held, (1,), True, "max"), (ROWS @ cta.row, 1)), "f32")
                power = tf.exp(tf.cast(held, "f32") - most)
                total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (ROWS @ cta.row, 1))
                share = tf.exp(tf.cast(held, "f32") - (most + tf.log(total)))
                return tf.reshard(tf.cast(share, "bf16"), (ROWS @ cta.row, PER, THREADS @ t.lane, VEC), "gmem")
