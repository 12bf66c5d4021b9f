"""One row times a matrix stored (K, N): a strip of columns for each CTA, whose threads share K.
Shows a ring that keeps memory busy whatever the threads do, and sums that are partial over lanes
and warps until one reshard completes them. `python bench/gpu/kernels.py gemv` times it."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

N, K = 8192, 8192
WARPS, ROWS, VEC = 4, 4, 8
LANES = 32 // ROWS
COLS = LANES * VEC
BK, STAGES = 128, 12
PER = BK // (WARPS * ROWS)


@module(
    entry="gemv",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", N // COLS), Topology("thread", (1 + WARPS) * 32)),
)
class GemvColumns:
    @func
    def gemv(x: Tensor[(1, K), "bf16"], w: Tensor[(K, N), "bf16"]) -> Tensor[(1, N), "bf16"]:
        out = tf.empty(Tensor[(1, N), "bf16"])
        with Mesh(("cta",), layout=(N // COLS,), names=("strip",)) as cta:
            with Mesh(("thread",), layout=(1 + WARPS, 32), names=("warp", "lane")) as threads:
                n = cta.strip * COLS
                with Mesh(threads[1:, :], layout=(WARPS, ROWS, LANES), names=("warp", "row", "lane")) as t:
                    acc = tf.zeros(Tensor[(COLS,), "f32", (LANES @ t.lane, VEC) @ {t.warp @ P("sum"), t.row @ P("sum")}, "rmem"])
                for k in tf.tile(K, BK):
                    with threads[0, :]:
                        w_ring = tf.empty(Tensor[(BK, COLS), "bf16", "smem"], buffers=STAGES)
                        rows = tf.schedule((w[k, n:n + COLS], w_ring), op=T.copy_async_tensor())
                        x_ring = tf.empty(Tensor[(1, BK), "bf16", "smem"], buffers=STAGES)
                        part = tf.schedule((x[:, k], x_ring), op=T.copy_async_tensor())
                    with Mesh(threads[1:, :], layout=(WARPS, ROWS, LANES), names=("warp", "row", "lane")) as t:
                        mine = tf.reshard(rows, (WARPS @ t.warp, ROWS @ t.row, PER, LANES @ t.lane, VEC), "rmem")
                        scale = tf.reshard(tf.reshape(part, (BK, 1)), (WARPS @ t.warp, ROWS @ t.row, PER, 1), "rmem")
                        acc = acc + tf.reduce(tf.cast(scale, "f32") * tf.cast(mine, "f32"), (0,), False, "sum")
                with Mesh(threads[1:, :], layout=(WARPS, ROWS, LANES), names=("warp", "row", "lane")) as t:
                    total = tf.reshard(acc, (LANES @ t.lane, VEC))
                    out = tf.insert_slice(out, tf.reshape(tf.cast(total, "bf16"), (1, COLS)), (0, n))
        return out
