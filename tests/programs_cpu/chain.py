"""The chain (x * x + x) * x over any number of elements: a core takes every CORES-th chunk
of VECS vectors, the last chunk is padded."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE = 10007, "f16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 4
CHUNK = LANES * VECS
STEPS = ceildiv(N, CHUNK)


@module(
    entry="chain",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Chain:
    @func
    def chain(x: Tensor[(N,), DTYPE]) -> Tensor[(N,), DTYPE]:
        padded = tf.pad(x, (0, STEPS * CHUNK - N), 0.0)
        out = tf.empty(Tensor[(STEPS * CHUNK,), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(cores.core, STEPS, CORES):
                    at = step * CHUNK
                    v = tf.reshard(padded[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                    out = tf.insert_slice(out, (v * v + v) * v, (at,))
        return out[:N]
