"""Split-K GEMM in one kernel: the CTAs of a cluster each sum a part of K for one tile.
Shows partial tiles in shared memory, one in each CTA, that every CTA adds up for its own rows."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 256, 2048, 16384
SPLITS = 4
BM, BN, BK = 128, 128, 64
GM, GN, DEPTH = M // BM, N // BN, K // SPLITS
STAGES = 4
ROWS = BM // SPLITS

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", GM * GN), Topology("cta", SPLITS), Topology("thread", 384)),
)
class SplitKCluster:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cluster",), layout=(GM, GN), names=("row", "col")) as cluster:
            with Mesh(("cta",), layout=(SPLITS,), names=("split",)) as cta:
                with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                    m = cluster.row * BM
                    n = cluster.col * BN
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for step in range(DEPTH // BK):
                        k = cta.split * DEPTH + step * BK
                        with threads[0, :32] as load:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k:k + BK], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k:k + BK, n:n + BN], b_ring), op=T.copy_async_tensor())
                        with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(2, 1, BK // 16))
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        room = tf.empty(Tensor[(SPLITS @ cta.split, BM, BN), "f32", "smem"])
                        parts = tf.insert_slice(room, tf.reshape(acc, (1, BM, BN)), (cta.split, 0, 0))
                    with Mesh(threads[1:3, :], layout=(8, 32), names=("warp", "lane")) as sum:
                        total = tf.reshard(tf.reduce(parts, (0,), kind="sum"), (SPLITS @ cta.split, ROWS // 8, 8 @ sum.warp, 32 @ sum.lane, BN // 32), "rmem")
                        out = tf.insert_slice(out, tf.cast(total, "bf16"), (m, n))
        return out
