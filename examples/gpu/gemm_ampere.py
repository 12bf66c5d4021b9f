"""GEMM by mma.sync: a producer warp with cp.async, 2 x 2 consumer warps with ldmatrix.
Shows a ring filled by plain asynchronous copies and fragments in registers for A, B and C."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 4096, 4096, 4096
BM, BN, BK = 128, 128, 32
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 4
FM, FN, FK = BM // 32, BN // 16, BK // 16

mma = T.cuda.sm80.Mma(dtype="bf16")


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 160)),
)
class GemmAmpere:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(5, 32), names=("warp", "lane")) as threads:
                for task in range(cta.block, GM * GN, CTAS):
                    m = task // GN * BM
                    n = task % GN * BN
                    with Mesh(threads[1:5, :], layout=((2, 2, 4, 8), (64, 32, 1, 4)), names=("wm", "wn", "l4", "l8")) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.wm, FM, 2, 8 @ use.l8, 2 @ use.wn, FN, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :] as load:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(2, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (2, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async())
                        with Mesh(threads[1:5, :], layout=((2, 2, 4, 8), (64, 32, 1, 4)), names=("wm", "wn", "l4", "l8")) as use:
                            a_regs = tf.empty(Tensor[(BM, BK), "bf16", (2 @ use.wm, FM, 2, 8 @ use.l8, FK, 2, 4 @ use.l4, 2), "rmem"])
                            a_frag = tf.schedule((lhs, a_regs), op=T.ldmatrix())
                            b_regs = tf.empty(Tensor[(BK, BN), "bf16", (FK, 2, 4 @ use.l4, 2, 2 @ use.wn, FN, 8 @ use.l8), "rmem"])
                            b_frag = tf.schedule((rhs, b_regs), op=T.ldmatrix())
                            acc = tf.schedule((acc, a_frag, b_frag), op=T.tiled_mma(atom=mma), repeat=(BM // 16, BN // 8, FK))
                    with Mesh(threads[1:5, :], layout=((2, 2, 4, 8), (64, 32, 1, 4)), names=("wm", "wn", "l4", "l8")) as use:
                        out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m, n))
        return out
