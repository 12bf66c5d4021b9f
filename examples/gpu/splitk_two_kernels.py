"""Split-K GEMM in two kernels: partial tiles in f32 to global memory, then their sum.
Shows a function call as the boundary between launches, and a value that lives between them."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 256, 2048, 16384
SPLITS = 8
BM, BN, BK = 128, 128, 64
GM, GN, DEPTH = M // BM, N // BN, K // SPLITS
STAGES = 4
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
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        return total(partial(a, b))

    @func
    def partial(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(SPLITS, M, N), "f32"]:
        parts = tf.empty(Tensor[(SPLITS, M, N), "f32"])
        with Mesh(("cta",), layout=(SPLITS, GM, GN), names=("split", "row", "col")) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                m = cta.row * BM
                n = cta.col * BN
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
                    parts = tf.insert_slice(parts, tf.reshape(acc, (1, BM, BN)), (cta.split, m, n))
        return parts

    @func
    def total(parts: Tensor[(SPLITS, M, N), "f32"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(M, N // WIDTH), names=("row", "col")) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                n = cta.col * WIDTH
                acc = tf.zeros(Tensor[(1, WIDTH), "f32", (1, THREADS @ t.lane, VEC), "rmem"])
                for split in range(SPLITS):
                    acc = acc + tf.reshard(parts[split, cta.row:cta.row + 1, n:n + WIDTH], (1, THREADS @ t.lane, VEC), "rmem")
                out = tf.insert_slice(out, tf.cast(acc, "bf16"), (cta.row, n))
        return out
