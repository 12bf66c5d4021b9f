"""GEMM with an epilogue: bias, GELU and a residual, on one strip of a tile after the other.
Shows that an epilogue is written as it is computed, and how it fits into the registers; a warp of
its own brings the residual while the products run."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 4096, 4096
BM, BN, BK = 128, 256, 64
STRIP = 64
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 3
GROUP = 8
SHAPE, NAMES = (2, 4, 8, 4), ("g", "w", "l8", "l4")

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
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as t:
                for task in range(cta.block, GM * GN, CTAS):
                    m = (task // (GROUP * GN) * GROUP + task % GROUP) * BM
                    n = task // GROUP % GN * BN
                    turn = task // CTAS % 2
                    with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for step in range(0, K, BK):
                        k = step + turn * (K - BK - 2 * step)
                        with t[0, :32]:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k:k + BK], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k:k + BK, n:n + BN], b_ring), op=T.copy_async_tensor())
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, BK // 16))
                    for strip in range(BN // STRIP):
                        at = n + strip * STRIP
                        with t[0, 32:64]:
                            ring = tf.empty(Tensor[(BM, STRIP), "bf16", Layout((BM, STRIP)) | Swizzle(3, 4, 3), "smem"], buffers=2)
                            more = tf.schedule((residual[m:m + BM, at:at + STRIP], ring), op=T.copy_async_tensor())
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            shift = tf.cast(tf.reshard(bias[at:at + STRIP], (STRIP // 8, 4 @ use.l4, 2), "rmem"), "f32")
                            added = tf.reshard(more, (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, STRIP // 8, 4 @ use.l4, 2), "rmem")
                            mine = tf.reshape(acc, (BM, BN // STRIP, STRIP))[:, strip, :]
                            active = tf.gelu(mine + shift, approximate="tanh") + tf.cast(added, "f32")
                            staging = tf.empty(Tensor[(BM, STRIP), "bf16", Layout((BM, STRIP)) | Swizzle(3, 4, 3), "smem"], buffers=2)
                            staged = tf.schedule((tf.cast(active, "bf16"), staging), op=T.copy())
                        with t[1, :32]:
                            half = tf.schedule((staged[:64, :], tf.empty(Tensor[(64, STRIP), "bf16"])), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, half, (m, at))
                        with t[2, :32]:
                            half = tf.schedule((staged[64:, :], tf.empty(Tensor[(64, STRIP), "bf16"])), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, half, (m + 64, at))
        return out
