"""Decode GEMV, y = W x with W in bf16: each core takes rows, its lanes the columns, R rows
at a time so that x is read once for all of them, and each has a prefetcher of its own. Bound by the
memory that W is read from: the rows of the next step are asked for ahead."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
N, K = 44, 512
R, V = 8, 1
CORES, LANES = 2, 16
AHEAD = CORES * R * K
ROWS = ceildiv(N, CORES * R) * CORES * R


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
                for n in range(cores.core * R, ROWS, CORES * R):
                    acc = tf.zeros(Tensor[(R, V * LANES), "f32", (R, V, LANES @ t.lane), "rmem"])
                    for k in tf.tile(K, V * LANES):
                        part = tf.reshard(x[k], (V, LANES @ t.lane), "rmem")
                        held = tf.empty(Tensor[(R, V * LANES), "bf16", (R, V, LANES @ t.lane), "rmem"])
                        rows = tf.schedule((padded[n:n + R, k], held), op=T.x86.LoadAhead(), prefetch=AHEAD)
                        acc = tf.fma(tf.cast(rows, "f32"), part, acc)
                    sums = tf.reduce(acc, (1,), False, "sum")
                    out = tf.insert_slice(out, tf.reshard(sums, (R,)), (n,))
        return out[:N]
