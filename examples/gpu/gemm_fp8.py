"""GEMM of fp8 by wgmma: A and B both contiguous along K, f32 accumulators, bf16 out.
Shows a shared tile read through its transpose: B is stored (N, K) and used as (K, N)."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 8192, 8192
BM, BN, BK = 128, 256, 128
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 3
GROUP = 16

wgmma = T.cuda.sm90.Wgmma(n=256, dtype="fp8e4m3", form=T.cuda.sm90.Form.SS)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 384)),
)
class GemmFp8:
    @func
    def gemm(a: Tensor[(M, K), "fp8e4m3"], b: Tensor[(N, K), "fp8e4m3"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                for task in range(cta.block, GM * GN, CTAS):
                    m = (task // (GROUP * GN) * GROUP + task % GROUP) * BM
                    n = task // GROUP % GN * BN
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :32] as load:
                            a_ring = tf.empty(Tensor[(BM, BK), "fp8e4m3", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BN, BK), "fp8e4m3", Layout((BN, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[n:n + BN, k], b_ring), op=T.copy_async_tensor())
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                            acc = tf.schedule((acc, lhs, tf.transpose(rhs, (1, 0))), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, BK // 32))
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        staged_dst = tf.empty(Tensor[(BM, BN), "bf16", Layout((BM, (4, 64)), (64, (64 * BM, 1))) | Swizzle(3, 4, 3), "smem"])
                        staged = tf.schedule((tf.cast(acc, "bf16"), staged_dst), op=T.copy())
                    with threads[0, 32:64] as store:
                        tile = tf.schedule((staged, tf.empty(Tensor[(BM, BN), "bf16"])), op=T.copy_async_tensor())
                        out = tf.insert_slice(out, tile, (m, n))
        return out
