"""Decode GEMV, y = W x with W in bf16: each core takes rows, its lanes the columns, four rows
at a time so that x is read once for all of them. Bound by the memory that W is read from."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

CPU = "amd.epyc_avx512"
N, K = 44, 512
R, V = 4, 2
CORES, LANES = 2, 16


@module(
    entry="gemv",
    target=X86Target(CPU),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Gemv:
    @func
    def gemv(w: Tensor[(N, K), "bf16"], x: Tensor[(K,), "f32"]) -> Tensor[(N,), "f32"]:
        out = tf.empty(Tensor[(N,), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for n in range(cores.core * R, N, CORES * R):
                    acc = tf.zeros(Tensor[(R, V * LANES), "f32", (R, V, LANES @ t.lane), "rmem"])
                    for k in tf.tile(K, V * LANES):
                        part = tf.reshard(x[k], (V, LANES @ t.lane), "rmem")
                        rows = tf.reshard(w[n:n + R, k], (R, V, LANES @ t.lane), "rmem")
                        acc = acc + tf.cast(rows, "f32") * part
                    sums = tf.reduce(acc, (1,), False, "sum")
                    out = tf.insert_slice(out, tf.reshard(sums, (R,)), (n,))
        return out
