"""Split-K GEMM in two kernels: partial tiles in f32 to global memory, then their sum.
Shows a function call as the boundary between launches, and a B stored either way round."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 128, 7168, 2048
B_ROWS = "k"
SPLITS = 2
BM, BN, BK = min(M, 128), 128, 64
GM, GN, DEPTH = M // BM, N // BN, K // SPLITS
GROUPS = BM // 64
STAGES = 6
THREADS, VEC = 128, 4
WIDTH = THREADS * VEC

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", max(SPLITS * GM * GN, M * (N // WIDTH))), Topology("thread", 384)),
)
class SplitK:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]) -> Tensor[(M, N), "bf16"]:
        return total(partial(a, b))

    @func
    def partial(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]) -> Tensor[(SPLITS, M, N), "f32"]:
        parts = tf.empty(Tensor[(SPLITS, M, N), "f32"])
        with Mesh(("cta",), layout=(SPLITS, GM, GN), names=("split", "row", "col")) as cta:
            with Mesh(("thread",), layout=(1 + GROUPS, 128), names=("group", "lane")) as threads:
                m = cta.row * BM
                n = cta.col * BN
                with Mesh(threads[1:, :], layout=(GROUPS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    acc = tf.zeros(Tensor[(BM, BN), "f32", (GROUPS @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                for step in range(DEPTH // BK):
                    k = cta.split * DEPTH + step * BK
                    with threads[0, :32] as load:
                        a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        lhs = tf.schedule((a[m:m + BM, k:k + BK], a_ring), op=T.copy_async_tensor())
                        if B_ROWS == "k":
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k:k + BK, n:n + BN], b_ring), op=T.copy_async_tensor())
                        else:
                            b_ring = tf.empty(Tensor[(BN, BK), "bf16", Layout((BN, BK)) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.transpose(tf.schedule((b[n:n + BN, k:k + BK], b_ring), op=T.copy_async_tensor()), (1, 0))
                    with Mesh(threads[1:, :], layout=(GROUPS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma), repeat=(GROUPS, 1, BK // 16))
                with Mesh(threads[1:, :], layout=(GROUPS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    parts = tf.insert_slice(parts, tf.reshape(acc, (1, BM, BN)), (cta.split, m, n))
        return parts

    @func
    def total(parts: Tensor[(SPLITS, M, N), "f32"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(M, N // WIDTH), names=("row", "col")) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                n = cta.col * WIDTH
                held = tf.reshard(parts[:, cta.row:cta.row + 1, n:n + WIDTH], (SPLITS, 1, THREADS @ t.lane, VEC), "rmem")
                out = tf.insert_slice(out, tf.cast(tf.reduce(held, (0,), False, "sum"), "bf16"), (cta.row, n))
        return out
