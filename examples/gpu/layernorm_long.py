"""LayerNorm over rows longer than a CTA's registers: three passes over chunks of the row.
Shows sums carried through loops as partial values, completed once at the end of each pass."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, LENGTH = 1024, 262144
CTAS, THREADS, VEC, PER = 132, 512, 8, 2
CHUNK = THREADS * VEC * PER
EPS = 1e-5


@module(
    entry="layernorm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS)),
)
class LayernormLong:
    @func
    def layernorm(
        x: Tensor[(ROWS, LENGTH), "bf16"],
        weight: ConstTensor[(LENGTH,), "bf16"],
        bias: ConstTensor[(LENGTH,), "bf16"],
    ) -> Tensor[(ROWS, LENGTH), "bf16"]:
        out = tf.empty(Tensor[(ROWS, LENGTH), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                for row in range(cta.block, ROWS, CTAS):
                    total = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                    for c in tf.tile(LENGTH, CHUNK):
                        part = tf.cast(tf.reshard(x[row:row + 1, c], (1, PER, THREADS @ t.lane, VEC), "rmem"), "f32")
                        total = total + tf.reduce(part, (1,), True, "sum")
                    mean = tf.reshard(total, (1, 1)) * (1.0 / LENGTH)
                    spread = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                    for c in tf.tile(LENGTH, CHUNK):
                        part = tf.cast(tf.reshard(x[row:row + 1, c], (1, PER, THREADS @ t.lane, VEC), "rmem"), "f32")
                        spread = spread + tf.reduce(tf.square(part - mean), (1,), True, "sum")
                    scale = tf.rsqrt(tf.reshard(spread, (1, 1)) * (1.0 / LENGTH) + EPS)
                    for c in tf.tile(LENGTH, CHUNK):
                        part = tf.cast(tf.reshard(x[row:row + 1, c], (1, PER, THREADS @ t.lane, VEC), "rmem"), "f32")
                        gain = tf.cast(tf.reshard(weight[c], (PER, THREADS @ t.lane, VEC), "rmem"), "f32")
                        shift = tf.cast(tf.reshard(bias[c], (PER, THREADS @ t.lane, VEC), "rmem"), "f32")
                        normed = (part - mean) * scale * gain + shift
                        out = tf.insert_slice(out, tf.cast(normed, "bf16"), (row, c.start))
        return out
