"""GEMM of few rows: all of b passes once and little is computed with it, so what counts is that
loads are never waited for. Narrow tiles give nearly every processor one, deep rings keep 200 KiB
on their way, CTAs that need the same strip of b are a cluster and load it once, and the result
leaves by the copy engine in whole rows: fragments alone are stores of 16 bytes, half a sector.
B_ROWS="n": b is (N, K), and tiles of 112 columns make 128 CTAs of 7168.
`python bench/gpu/kernels.py 'gemm_128*' 'gemm_64*'` times it against torch."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 128, 7168, 2048
B_ROWS = "k"
BM, BN, BK, STAGES = 64, 128, 64, 8
PAIR = M // BM
PANEL = min(BN, 64)
WIDE = Swizzle(3 if PANEL == 64 else 2, 4, 3)
STAGED = Layout((BM, (BN // PANEL, PANEL)), (PANEL, (PANEL * BM, 1))) | WIDE if BN % PANEL == 0 else Layout((BM, BN))
SHAPE, NAMES = (4, 8, 4), ("w", "l8", "l4")

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", N // BN), Topology("cta", PAIR), Topology("thread", 256)),
)
class GemmSkinny:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cluster",), layout=(N // BN,), names=("strip",)) as cluster:
            with Mesh(("cta",), layout=(PAIR,), names=("row",)) as cta:
                with Mesh(("thread",), layout=(2, 128), names=("group", "lane")) as threads:
                    m, n = cta.row * BM, cluster.strip * BN
                    with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                        acc = tf.zeros(Tensor[(BM, BN), "f32", (4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                    for k in tf.tile(K, BK):
                        with threads[0, :32]:
                            a_ring = tf.empty(Tensor[(BM, BK), "bf16", Layout((BM, (BK // 64, 64)), (64, (64 * BM, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                            lhs = tf.schedule((a[m:m + BM, k], a_ring), op=T.copy_async_tensor())
                            if B_ROWS == "k":
                                b_ring = tf.empty(Tensor[(BK, BN), "bf16", Layout((BK, (BN // PANEL, PANEL)), (PANEL, (PANEL * BK, 1))) | WIDE, "smem"], buffers=STAGES)
                                rhs = tf.schedule((b[k, n:n + BN], b_ring), op=T.copy_async_tensor())
                            else:
                                b_ring = tf.empty(Tensor[(BN, BK), "bf16", Layout((BN, (BK // 64, 64)), (64, (64 * BN, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                                rhs = tf.transpose(tf.schedule((b[n:n + BN, k], b_ring), op=T.copy_async_tensor()), (1, 0))
                        with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma))
                    with Mesh(threads[1, :], layout=SHAPE, names=NAMES) as use:
                        staging = tf.empty(Tensor[(BM, BN), "bf16", STAGED, "smem"])
                        staged = tf.schedule((tf.cast(acc, "bf16"), staging), op=T.copy())
                    with threads[1, :32]:
                        there = tf.empty(Tensor[(BM, BN), "bf16", (BM, BN)])
                        out = tf.insert_slice(out, tf.schedule((staged, there), op=T.copy_async_tensor()), (m, n))
        return out
