"""LayerNorm, a row for each CTA, its numbers held as bf16 and finished strip by strip.
Shows two sums that need one another: the mean first, then the spread around it."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 32768, 4096
THREADS, VEC = 256, 8
STRIP = THREADS * VEC
PER = COLS // STRIP
EPS = 1e-5


@module(
    entry="layernorm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", ROWS), Topology("thread", THREADS)),
)
class Layernorm:
    @func
    def layernorm(
        x: Tensor[(ROWS, COLS), "bf16"],
        weight: ConstTensor[(COLS,), "bf16"],
        bias: ConstTensor[(COLS,), "bf16"],
    ) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("cta",), layout=(ROWS,), names=("row",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                held = tf.reshard(x[cta.row:cta.row + 1, :], (1, PER, THREADS @ t.lane, VEC), "rmem")
                strips = tf.reshape(held, (1, PER, STRIP))
                total = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                for strip in range(PER):
                    total = total + tf.reduce(tf.cast(strips[:, strip, :], "f32"), (1,), True, "sum")
                mean = tf.reshard(total, (1, 1)) * (1.0 / COLS)
                spread = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                for strip in range(PER):
                    apart = tf.cast(strips[:, strip, :], "f32") - mean
                    spread = spread + tf.reduce(tf.square(apart), (1,), True, "sum")
                scale = tf.rsqrt(tf.reshard(spread, (1, 1)) * (1.0 / COLS) + EPS)
                for strip in range(PER):
                    at = strip * STRIP
                    gain = tf.reshard(weight[at:at + STRIP], (THREADS @ t.lane, VEC), "rmem")
                    shift = tf.reshard(bias[at:at + STRIP], (THREADS @ t.lane, VEC), "rmem")
                    normed = (tf.cast(strips[:, strip, :], "f32") - mean) * scale * tf.cast(gain, "f32")
                    out = tf.insert_slice(out, tf.cast(normed + tf.cast(shift, "f32"), "bf16"), (cta.row, at))
        return out
