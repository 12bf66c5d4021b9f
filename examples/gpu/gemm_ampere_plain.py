"""GEMM by mma.sync, one role: the same 128 threads copy with cp.async and multiply.
Shows what a program without specialised warps needs: barriers of the whole CTA only."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 4096, 4096, 4096
BM, BN, BK = 128, 128, 32
GM, GN = M // BM, N // BN
STAGES = 4
FM, FN, FK = BM // 32, BN // 16, BK // 16

mma = T.cuda.sm80.Mma(dtype="bf16")


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", GM * GN), Topology("thread", 128)),
)
class GemmAmperePlain:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(GM, GN), names=("row", "col")) as cta:
            m = cta.row * BM
            n = cta.col * BN
            with Mesh(("thread",), layout=((2, 2, 4, 8), (64, 32, 1, 4)), names=("wm", "wn", "l4", "l8")) as use:
                acc = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.wm, FM, 2, 8 @ use.l8, 2 @ use.wn, FN, 4 @ use.l4, 2), "rmem"])
                for k in tf.tile(K, BK):
                    a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, BK)) | Swizzle(2, 4, 3), "smem"], buffers=STAGES)
                    lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async())
                    b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (2, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                    rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async())
                    a_regs = tf.empty(Tensor[(BM, BK), "bf16", (2 @ use.wm, FM, 2, 8 @ use.l8, FK, 2, 4 @ use.l4, 2), "rmem"])
                    a_frag = tf.schedule((lhs, a_regs), op=T.ldmatrix())
                    b_regs = tf.empty(Tensor[(BK, BN), "bf16", (FK, 2, 4 @ use.l4, 2, 2 @ use.wn, FN, 8 @ use.l8), "rmem"])
                    b_frag = tf.schedule((rhs, b_regs), op=T.ldmatrix())
                    acc = tf.schedule((acc, a_frag, b_frag), op=T.tiled_mma(atom=mma), repeat=(BM // 16, BN // 8, FK))
                out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m, n))
        return out
