"""An fp16 elementwise chain (x * x + x) * x over any number of elements: a core takes its
part of the blocks of STREAMS pages and goes through the pages of a block side by side, so that
each has a prefetcher of its own, and asks for the block that follows. The result is stored past
the caches: it is not read again here."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

N, DTYPE = 10007, "f16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
STREAMS, PAGE = 4, 4096
CHUNK = LANES * VECS
RUN = PAGE // (4 if DTYPE == "f32" else 2)
BLOCK = STREAMS * RUN
PART = ceildiv(N, CORES * BLOCK)
BLOCKS = CORES * PART
WHOLE = N >= CHUNK
store, load = (T.x86.StreamStore(), T.x86.LoadAhead()) if WHOLE else (T.copy(), T.copy())
AHEAD = BLOCK if WHOLE else None


@module(
    entry="chain",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Chain:
    @func
    def chain(x: Tensor[(N,), DTYPE]) -> Tensor[(N,), DTYPE]:
        padded = tf.pad(x, (0, BLOCKS * BLOCK - N), 0.0)
        out = tf.empty(Tensor[(BLOCKS * BLOCK,), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for block in range(cores.core * PART, cores.core * PART + PART):
                    for c in tf.tile(RUN, CHUNK):
                        for stream in range(STREAMS):
                            at = block * BLOCK + stream * RUN + c.start
                            held = tf.empty(Tensor[(CHUNK,), DTYPE, (VECS, LANES @ t.lane), "rmem"])
                            v = tf.schedule((padded[at:at + CHUNK], held), op=load, prefetch=AHEAD)
                            made = tf.schedule(((v * v + v) * v, tf.empty(Tensor[(CHUNK,), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (at,))
        return out[:N]
