"""GEMM by wgmma with A from registers: tiles of 64 x 256 per consumer warpgroup, 128 deep.
Shows a fragment loaded by ldmatrix feeding an asynchronous instruction (form RS)."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 4096, 4096, 4096
CONSUMERS = 1
BM, BN, BK = 64 * CONSUMERS, 256, 128
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 2
BLOCKS = BK // 16

wgmma = T.cuda.sm90.Wgmma(n=256, dtype="bf16", form=T.cuda.sm90.Form.RS)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 128 * (1 + CONSUMERS))),
)
class GemmRs:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(1 + CONSUMERS, 128), names=("group", "lane")) as threads:
                for task in range(cta.block, GM * GN, CTAS):
                    m = task // GN * BM
                    n = task % GN * BN
                    with Mesh(threads[1:1 + CONSUMERS, :], layout=(CONSUMERS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (CONSUMERS @ use.g, 4 @ use.w, 2, 8 @ use.l8, 32, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :32] as load:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, (2, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async_tensor())
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout(((BLOCKS, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async_tensor())
                        with Mesh(threads[1:1 + CONSUMERS, :], layout=(CONSUMERS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                            a_regs = tf.empty(Tensor[(BM, BK), "bf16", (CONSUMERS @ use.g, 4 @ use.w, 2, 8 @ use.l8, BLOCKS, 2, 4 @ use.l4, 2), "rmem"])
                            fragment = tf.schedule((lhs, a_regs), op=T.ldmatrix())
                            acc = tf.schedule((acc, fragment, rhs), op=T.tiled_mma(atom=wgmma), repeat=(CONSUMERS, 1, BLOCKS))
                    with Mesh(threads[1:1 + CONSUMERS, :], layout=(CONSUMERS, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m, n))
        return out
