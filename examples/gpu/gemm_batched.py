"""Batched GEMM: one persistent loop over the tiles of all products of a batch.
Shows a task number divided into a product, a row and a column of tiles; the rest is as in
gemm_halves."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

BATCH, M, N, K = 16, 2048, 2048, 1024
BM, BN, BK = 128, 256, 64
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 3
SHAPE, NAMES = (2, 4, 8, 4), ("g", "w", "l8", "l4")

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 384)),
)
class GemmBatched:
    @func
    def gemm(a: Tensor[(BATCH, M, K), "bf16"], b: Tensor[(BATCH, K, N), "bf16"]) -> Tensor[(BATCH, M, N), "bf16"]:
        out = tf.empty(Tensor[(BATCH, M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as t:
                for task in range(cta.block, BATCH * GM * GN, CTAS):
                    batch = task // (GM * GN)
                    m = task % GM * BM
                    n = task // GM % GN * BN
                    turn = task // CTAS % 2
                    with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for step in range(0, K, BK):
                        k = step + turn * (K - BK - 2 * step)
                        with t[0, :32]:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[batch, m:m + BM, k:k + BK], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[batch, k:k + BK, n:n + BN], b_ring), op=T.copy_async_tensor())
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, BK // 16))
                    with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                        staging = tf.empty(Tensor[(BM, BN), "bf16", Layout((BM, (BN // 64, 64)), (64, (64 * BM, 1))) | Swizzle(3, 4, 3), "smem"])
                        staged = tf.schedule((tf.cast(acc, "bf16"), staging), op=T.copy())
                    with t[1, :32]:
                        half = tf.schedule((staged[:64, :], tf.empty(Tensor[(64, BN), "bf16"])), op=T.copy_async_tensor())
                        out = tf.insert_slice(out, tf.reshape(half, (1, 64, BN)), (batch, m, n))
                    with t[2, :32]:
                        half = tf.schedule((staged[64:, :], tf.empty(Tensor[(64, BN), "bf16"])), op=T.copy_async_tensor())
                        out = tf.insert_slice(out, tf.reshape(half, (1, 64, BN)), (batch, m + 64, n))
        return out
