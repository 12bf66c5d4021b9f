"""GEMM of few rows: every CTA needs all of A, so clusters load it once, a part by each CTA.
Shows that multicast relieves the way from the cache, which bounds products of this shape."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 128, 7168, 2048
B_ROWS = "k"
BN, BK, STAGES, CLUSTER = 64, 64, 8, 4
GROUPS = M // 64
PANEL = min(BN, 64)
SHAPE, NAMES = (GROUPS, 4, 8, 4), ("g", "w", "l8", "l4")

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", N // (BN * CLUSTER)), Topology("cta", CLUSTER), Topology("thread", 128 * (1 + GROUPS))),
)
class GemmSkinny:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cluster",), layout=(N // (BN * CLUSTER),), names=("strip",)) as cluster:
            with Mesh(("cta",), layout=(CLUSTER,), names=("col",)) as cta:
                with Mesh(("thread",), layout=(1 + GROUPS, 128), names=("group", "lane")) as threads:
                    n = (cluster.strip * CLUSTER + cta.col) * BN
                    with Mesh(threads[1:, :], layout=SHAPE, names=NAMES) as use:
                        acc = tf.zeros(Tensor[(M, BN), "f32", (GROUPS @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :32]:
                            a_ring = tf.empty(Tensor[(M, BK), "bf16", Layout((M, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[:, k], a_ring), op=T.copy_async_tensor())
                            if B_ROWS == "k":
                                b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // PANEL, PANEL)), (PANEL, (PANEL * BK, 1))) | Swizzle(3 if PANEL == 64 else 2, 4, 3), "smem"], buffers=STAGES)
                                rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async_tensor())
                            else:
                                b_ring = tf.empty(Tensor[(BN, BK), "bf16", Layout((BN, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                                rhs = tf.transpose(tf.schedule((b[n:n + BN, k], b_ring), op=T.copy_async_tensor()), (1, 0))
                        with Mesh(threads[1:, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma))
                    with Mesh(threads[1:, :], layout=SHAPE, names=NAMES) as use:
                        out = tf.insert_slice(out, tf.cast(acc, "bf16"), (0, n))
        return out
