"""One row times a matrix stored (N, K): a warp for each output, lanes along K.
Shows a product without matrix instructions: the matrix is read once, at the speed of memory."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N, K = 8192, 8192
WARPS, VEC, PER = 8, 8, 8
STEP = 32 * VEC * PER


@module(
    entry="gemv",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", N // WARPS), Topology("thread", WARPS * 32)),
)
class Gemv:
    @func
    def gemv(x: Tensor[(1, K), "bf16"], w: Tensor[(N, K), "bf16"]) -> Tensor[(1, N), "bf16"]:
        out = tf.empty(Tensor[(1, N), "bf16"])
        with Mesh(("cta",), layout=(N // WARPS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("warp", "lane")) as t:
                n = cta.block * WARPS
                acc = tf.zeros(Tensor[(WARPS,), "f32", (WARPS @ t.warp,) @ {t.lane @ P("sum")}, "rmem"])
                for k in tf.tile(K, STEP):
                    rows = tf.reshard(w[n:n + WARPS, k], (WARPS @ t.warp, PER, 32 @ t.lane, VEC), "rmem")
                    row = tf.reshard(x[:, k], (1, PER, 32 @ t.lane, VEC), "rmem")
                    terms = tf.cast(rows, "f32") * tf.cast(row, "f32")
                    acc = acc + tf.reduce(terms, (1,), False, "sum")
                total = tf.reshard(acc, (WARPS @ t.warp,))
                out = tf.insert_slice(out, tf.reshape(tf.cast(total, "bf16"), (1, WARPS)), (0, n))
        return out
