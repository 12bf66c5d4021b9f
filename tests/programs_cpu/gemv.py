"""Decode GEMV, y = W x with W in bf16: each core takes its part of the rows, its lanes the columns, R
rows at a time so that x is read once for all of them, and each has a prefetcher of its own, V vectors of
each. Bound by the memory that W is read from: the rows of the next step are asked for ahead, and
what lies a page further in long rows, into the first cache: beyond a row's end those are of the
row below it, which is there already."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
N, K = 44, 512
CORES, LANES = 2, 16
R, V = 8, 4 if K % (4 * LANES) == 0 else 1
AHEAD = (R * K, 2048) if K > 2048 else R * K
PART = ceildiv(N, CORES * R) * R
ROWS = CORES * PART


@module(
    entry="gemv",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Gemv:
    @func
    def gemv(w: Tensor[(N, K), "bf16"], x: Tensor[(K,), "f32"]) -> Tensor[(N,), "f32"]:
        padded = tf.pad(w, (0, 0, 0, ROWS - N), 0.0)
        out = tf.empty(Tensor[(ROWS,), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core * PART, cores.core * PART + PART, R):
                    acc = tf.zeros(Tensor[(R, LANES), "f32", (R, LANES @ t.lane), "rmem"])
                    for k in tf.tile(K, V * LANES):
                        part = tf.reshape(tf.reshard(x[k], (V, LANES @ t.lane), "rmem"), (V, LANES))
                        for r in tuple(range(R)):
                            held = tf.empty(Tensor[(1, V * LANES), "bf16", (1, V, LANES @ t.lane), "rmem"])
                            one = tf.schedule((padded[n + r:n + r + 1, k], held), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            wide = tf.reshape(tf.cast(one, "f32"), (1, V, LANES))
                            for v in tuple(range(V)):
                                acc = tf.insert_slice(acc, tf.fma(wide[:, v], part[v:v + 1], acc[r:r + 1]), (r, 0))
                    sums = tf.reduce(acc, (1,), False, "sum")
                    out = tf.insert_slice(out, tf.reshard(sums, (R,)), (n,))
        return out[:N]
