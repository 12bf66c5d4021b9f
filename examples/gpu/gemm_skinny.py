"""GEMM of few rows: no tile is shared for long, so what bounds it is how fast shared memory fills,
64 bytes a cycle for each CTA. Narrow tiles give every processor one; deep rings keep 200 KiB on
their way. B_ROWS="n": b is (N, K), and tiles of 112 columns make 128 CTAs of 7168.
`python bench/gpu/kernels.py 'gemm_128*' 'gemm_64*'` times it against torch."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 128, 7168, 2048
B_ROWS = "k"
BM, BN, BK, STAGES = 64, 128, 64, 9
PANEL = min(BN, 64)
SHAPE, NAMES = (4, 8, 4), ("w", "l8", "l4")

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", (M // BM) * (N // BN)), Topology("thread", 256)),
)
class GemmSkinny:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(N // BN, M // BM), names=("strip", "row")) as cta:
            with Mesh(("thread",), layout=(2, 128), names=("group", "lane")) as threads:
                m, n = cta.row * BM, cta.strip * BN
                with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                    acc = tf.zeros(Tensor[(BM, BN), "f32", (4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                for k in tf.tile(K, BK):
                    with threads[0, :32]:
                        a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, (BK // 64, 64)), (64, (64 * BM, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async_tensor())
                        if B_ROWS == "k":
                            b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // PANEL, PANEL)), (PANEL, (PANEL * BK, 1))) | Swizzle(3 if PANEL == 64 else 2, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async_tensor())
                        else:
                            b_ring = tf.empty(Tensor[(BN, BK), "bf16", Layout((BN, (BK // 64, 64)), (64, (64 * BN, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            rhs = tf.transpose(tf.schedule((b[n:n + BN, k], b_ring), op=T.copy_async_tensor()), (1, 0))
                    with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                        acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma))
                with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                    out = tf.insert_slice(out, tf.cast(acc, "bf16"), (m, n))
        return out
