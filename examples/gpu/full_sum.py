"""The sum of all elements: each thread adds its share over a loop, then all CTAs meet once.
Shows a partial value over every unit of the device, completed by one reshard."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

COUNT = 32768 * 4096
CTAS, THREADS, VEC, PER = 256, 512, 8, 4
SHARE, CHUNK = COUNT // CTAS, THREADS * VEC * PER


@module(
    entry="full_sum",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS)),
)
class FullSum:
    @func
    def full_sum(x: Tensor[(COUNT,), "bf16"]) -> Tensor[(1,), "f32"]:
        shares = tf.reshape(x, (CTAS, SHARE))
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                total = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {cta.block @ P("sum"), t.lane @ P("sum")}, "rmem"])
                for k in tf.tile(SHARE, CHUNK):
                    held = tf.reshard(shares[:, k], (CTAS @ cta.block, PER, THREADS @ t.lane, VEC), "rmem")
                    total = total + tf.reduce(tf.cast(held, "f32"), (0, 1), True, "sum")
                return tf.reshape(tf.reshard(total, (1, 1), "gmem"), (1,))
