"""Softmax over few rows that are very long, in two kernels: each row is cut among CTAs.
Shows maxima and sums of parts that meet in device memory, and 32 of them combined by lanes."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 4, 102400
PARTS, THREADS, VEC = 32, 160, 4
PART = COLS // PARTS
PER = PART // (THREADS * VEC)


@module(
    entry="softmax",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", ROWS * PARTS), Topology("thread", THREADS)),
)
class SoftmaxSplit:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        most, total = parted(x)
        return scaled(x, most, total)

    @func
    def parted(x: Tensor[(ROWS, COLS), "bf16"]) -> (Tensor[(ROWS, PARTS), "f32"], Tensor[(ROWS, PARTS), "f32"]):
        with Mesh(("cta",), layout=(ROWS, PARTS), names=("row", "part")) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                parts = tf.reshape(x, (ROWS, PARTS, PART))
                held = tf.reshard(parts, (ROWS @ cta.row, PARTS @ cta.part, PER, THREADS @ t.lane, VEC), "rmem")
                most = tf.reshard(tf.reduce(held, (2,), True, "max"), (ROWS @ cta.row, PARTS @ cta.part, 1))
                most = tf.cast(most, "f32")
                power = tf.exp(tf.cast(held, "f32") - most)
                total = tf.reshard(tf.reduce(power, (2,), True, "sum"), (ROWS @ cta.row, PARTS @ cta.part, 1))
                most = tf.reshard(tf.reshape(most, (ROWS, PARTS)), (ROWS, PARTS), "gmem")
                return most, tf.reshard(tf.reshape(total, (ROWS, PARTS)), (ROWS, PARTS), "gmem")

    @func
    def scaled(x: Tensor[(ROWS, COLS), "bf16"], most: Tensor[(ROWS, PARTS), "f32"], total: Tensor[(ROWS, PARTS), "f32"]) -> Tensor[(ROWS, COLS), "bf16"]:
        with Mesh(("cta",), layout=(ROWS, PARTS), names=("row", "part")) as cta:
            with Mesh(("thread",), layout=(THREADS // 32, 32), names=("warp", "lane")) as t:
                parts = tf.reshape(x, (ROWS, PARTS, PART))
                held = tf.reshard(parts, (ROWS @ cta.row, PARTS @ cta.part, PER, THREADS // 32 @ t.warp, 32 @ t.lane, VEC), "rmem")
                maxima = tf.reshard(most, (ROWS @ cta.row, 32 @ t.lane, PARTS // 32), "rmem")
                sums = tf.reshard(total, (ROWS @ cta.row, 32 @ t.lane, PARTS // 32), "rmem")
                largest = tf.reshard(tf.reduce(maxima, (1,), True, "max"), (ROWS @ cta.row, 1))
                whole = tf.reshard(tf.reduce(sums * tf.exp(maxima - largest), (1,), True, "sum"), (ROWS @ cta.row, 1))
                power = tf.exp(tf.cast(held, "f32") - tf.reshape(largest, (ROWS, 1, 1)))
                out = tf.cast(power / tf.reshape(whole, (ROWS, 1, 1)), "bf16")
                return tf.reshape(tf.reshard(out, (ROWS @ cta.row, PARTS @ cta.part, PER, THREADS // 32 @ t.warp, 32 @ t.lane, VEC), "gmem"), (ROWS, COLS))
