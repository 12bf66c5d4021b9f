"""The sum of all elements: each core goes through its part of them in blocks of STREAMS pages,
the pages side by side so that each has a prefetcher of its own, and adds chunks of VECS vectors
to as many sums; then the sums are combined, and what the cores have."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE = 5003, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 4
STREAMS, PAGE = 4, 4096
CHUNK = LANES * VECS
RUN = PAGE // (4 if DTYPE == "f32" else 2)
BLOCK = STREAMS * RUN
PART = ceildiv(N, CORES * BLOCK) * BLOCK


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
                sums = tf.zeros(Tensor[(CORES, CHUNK), "f32", (CORES @ cores.core, VECS, LANES @ t.lane), "rmem"])
                for block in range(0, PART, BLOCK):
                    for c in tf.tile(RUN, CHUNK):
                        for stream in range(STREAMS):
                            at = block + stream * RUN + c.start
                            v = tf.reshard(padded[:, at:at + CHUNK], (CORES @ cores.core, VECS, LANES @ t.lane), "rmem")
                            sums = sums + tf.cast(v, "f32")
                held = tf.reduce(sums, (0, 1), kind="sum")
                return tf.reshard(tf.reshape(held, (1,)), (1,), "gmem")
