"""GEMM with an epilogue: bias, GELU and a residual, on one strip of a tile after the other.
Shows that an epilogue is written as it is computed, and how it fits into the registers."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 4096, 4096
BM, BN, BK = 128, 256, 64
STRIP = 64
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 3
GROUP = 8

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 384)),
)
class GemmEpilogue:
    @func
    def gemm(
        a: Tensor[(M, K), "bf16"],
        b: Tensor[(K, N), "bf16"],
        bias: Tensor[(N,), "bf16"],
        residual: Tensor[(M, N), "bf16"],
    ) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                for task in range(cta.block, GM * GN, CTAS):
                    m = (task // (GROUP * GN) * GROUP + task % GROUP) * BM
                    n = task // GROUP % GN * BN
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :32]:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async_tensor())
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, BK // 16))
                    for strip in range(BN // STRIP):
                        at = n + strip * STRIP
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                            shift = tf.cast(tf.reshard(bias[at:at + STRIP], (STRIP // 8, 4 @ use.l4, 2), "rmem"), "f32")
                            added = tf.reshard(residual[m:m + BM, at:at + STRIP], (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, STRIP // 8, 4 @ use.l4, 2), "rmem")
                            mine = tf.reshape(acc, (BM, BN // STRIP, STRIP))[:, strip, :]
                            active = tf.gelu(mine + shift, approximate="tanh") + tf.cast(added, "f32")
                            staging = tf.empty(Tensor[(BM, STRIP), "bf16", Layout((BM, STRIP)) | Swizzle(3, 4, 3), "smem"], buffers=2)
                            staged = tf.schedule((tf.cast(active, "bf16"), staging), op=T.copy())
                        with threads[0, 32:64]:
                            tile = tf.schedule((staged, tf.empty(Tensor[(BM, STRIP), "bf16"])), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, tile, (m, at))
        return out
