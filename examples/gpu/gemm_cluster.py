"""The GEMM of gemm_own_storer by clusters of two CTAs, one above the other.
Shows that B, the same for both, is loaded once: each CTA loads half of the tile and multicasts it."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 17408, 5120
BM, BN, BK = 128, 256, 64
PAIR = 2
CLUSTERS = 66
GM, GN = M // (BM * PAIR), N // BN
STAGES = 3
GROUP = 8

wgmma = T.cuda.sm90.Wgmma(n=256, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", CLUSTERS), Topology("cta", PAIR), Topology("thread", 384)),
)
class GemmCluster:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cluster",), layout=(CLUSTERS,), names=("persistent",)) as cluster:
            with Mesh(("cta",), layout=(PAIR,), names=("half",)) as cta:
                with Mesh(("thread",), layout=(3, 128), names=("warpgroup", "participant")) as threads:
                    for task in range(cluster.persistent, GM * GN, CLUSTERS):
                        group = task // (GROUP * GN)
                        m = ((group * GROUP + task % GROUP) * PAIR + cta.half) * BM
                        n = (task // GROUP % GN) * BN
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("group", "warp", "lane8", "lane4")) as _compute:
                            acc = tf.zeros(Tensor[(BM, BN), "f32", ((2 @ _compute.group, 4 @ _compute.warp, 2, 8 @ _compute.lane8, 32, 4 @ _compute.lane4, 2), (16384, 16, 8, 1, 512, 128, 64)), "rmem"])
                        for k in tf.tile(K, BK):
                            with threads[0, :32] as _loader:
                                lhs_ring = tf.empty(Tensor[(128, 64), "bf16", Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                                lhs = tf.schedule((a[m:m + BM, k], lhs_ring), op=T.copy_async_tensor())
                                rhs_ring = tf.empty(Tensor[(64, 256), "bf16", Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                                rhs = tf.schedule((b[k, n:n + BN], rhs_ring), op=T.copy_async_tensor())
                            with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("group", "warp", "lane8", "lane4")) as _compute:
                                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, 4))
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("group", "warp", "lane8", "lane4")) as _compute:
                            tile_out = tf.cast(acc, dtype="bf16")
                            staged_dst = tf.empty(Tensor[(128, 256), "bf16", Layout((128, (4, 64)), (64, (8192, 1))) | Swizzle(3, 4, 3), "smem"])
                            staged = tf.schedule((tile_out, staged_dst), op=T.copy())
                        with threads[0, 32:64] as _storer:
                            tile_dst = tf.empty(Tensor[(128, 256), "bf16", (128, 256)])
                            tile = tf.schedule((staged, tile_dst), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, tile, (m, n))
        return out
