"""The sum of all elements: each core adds its part of them in chunks of VECS vectors, then the
cores combine what they have."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE = 5003, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 4
CHUNK = LANES * VECS
PART = ceildiv(N, CORES * CHUNK) * CHUNK


@module(
    entry="total",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Total:
    @func
    def total(x: Tensor[(N,), DTYPE]) -> Tensor[(1,), "f32"]:
        padded = tf.reshape(tf.pad(x, (0, CORES * PART - N), 0.0), (CORES, PART))
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                held = tf.zeros(
                    Tensor[(1,), "f32", (1,) @ {cores.core @ P("sum"), t.lane @ P("sum")}, "rmem"]
                )
                for c in tf.tile(PART, CHUNK):
                    v = tf.reshard(padded[:, c], (CORES @ cores.core, VECS, LANES @ t.lane), "rmem")
                    terms = tf.reduce(tf.cast(v, "f32"), (0, 1), kind="sum")
                    held = held + tf.reshape(terms, (1,))
                return tf.reshard(held, (1,), "gmem")
