"""A GEMM for the H200: one warp loads, two warpgroups multiply, and one warp of each stores its
half of the tile, so that loads of the next tile stand behind no store. B_ROWS="n": b is (N, K),
as it has to be for DTYPE="fp8e4m3".
K runs backwards in every other tile, so that what was read last is found in the cache; PAIR=2:
clusters of two CTAs, one above the other, load what they share of B once. No more CTAs than finish
in as many rounds as all processors would take: idle ones leave power to those that work.
`python bench/gpu/kernels.py gemm gemm_t` times it against torch."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 17408, 5120
DTYPE, B_ROWS = "bf16", "k"
BM, BN, BK = 128, 256, 64 if DTYPE == "bf16" else 128
PAIR = 1
STAGES = 3
GROUP = 16
GM, GN = M // (BM * PAIR), N // BN
ROUNDS = -(-GM * GN * PAIR // 132)
CTAS = -(-GM * GN // ROUNDS) * PAIR
CLUSTERS = CTAS // PAIR
SHAPE, NAMES = (2, 4, 8, 4), ("group", "warp", "lane8", "lane4")

wgmma = T.cuda.sm90.Wgmma(n=BN, dtype=DTYPE, form=T.cuda.sm90.Form.SS)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cluster", CLUSTERS), Topology("cta", PAIR), Topology("thread", 384)),
)
class GemmHalves:
    @func
    def gemm(
        a: Tensor[(M, K), DTYPE], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), DTYPE]
    ) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cluster",), layout=(CLUSTERS,), names=("at",)) as cluster:
            with Mesh(("cta",), layout=(PAIR,), names=("half",)) as cta:
                with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as t:
                    for task in range(cluster.at, GM * GN, CLUSTERS):
                        strip = task // (GROUP * GN)
                        m = ((strip * GROUP + task % GROUP) * PAIR + cta.half) * BM
                        n = (task // GROUP % GN) * BN
                        turn = task // CLUSTERS % 2
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.zeros(
                                Tensor[
                                    (BM, BN),
                                    "f32",
                                    (
                                        2 @ use.group,
                                        4 @ use.warp,
                                        2,
                                        8 @ use.lane8,
                                        BN // 8,
                                        4 @ use.lane4,
                                        2,
                                    ),
                                    "rmem",
                                ]
                            )
                        for step in range(0, K, BK):
                            k = step + turn * (K - BK - 2 * step)
                            with t[0, :32]:
                                left = tf.empty(
                                    Tensor[
                                        (BM, BK),
                                        DTYPE,
                                        Layout((BM, BK)) | Swizzle(3, 4, 3),
                                        "smem",
                                    ],
                                    buffers=STAGES,
                                )
                                lhs = tf.schedule((a[m : m + BM, k : k + BK], left), op=T.copy_async_tensor())
                                if B_ROWS == "k":
                                    right = tf.empty(
                                        Tensor[
                                            (BK, BN),
                                            DTYPE,
                                            Layout((BK, (BN // 64, 64)), (64, (64 * BK, 1))) | Swizzle(3, 4, 3),
                                            "smem",
                                        ],
                                        buffers=STAGES,
                                    )
                                    rhs = tf.schedule((b[k : k + BK, n : n + BN], right), op=T.copy_async_tensor())
                                else:
                                    right = tf.empty(
                                        Tensor[
                                            (BN, BK),
                                            DTYPE,
                                            Layout((BN, BK)) | Swizzle(3, 4, 3),
                                            "smem",
                                        ],
                                        buffers=STAGES,
                                    )
                                    tall = tf.schedule((b[n : n + BN, k : k + BK], right), op=T.copy_async_tensor())
                                    rhs = tf.transpose(tall, (1, 0))
                            with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                                acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma))
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            tile = tf.cast(acc, dtype="bf16")
                            staging = tf.empty(
                                Tensor[
                                    (BM, BN),
                                    "bf16",
                                    Layout((BM, (BN // 64, 64)), (64, (64 * BM, 1))) | Swizzle(3, 4, 3),
                                    "smem",
                                ]
                            )
                            staged = tf.schedule((tile, staging), op=T.copy())
                        with t[1, :32]:
                            there = tf.empty(Tensor[(64, BN), "bf16", (64, BN)])
                            half = tf.schedule((staged[:64, :], there), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, half, (m, n))
                        with t[2, :32]:
                            there = tf.empty(Tensor[(64, BN), "bf16", (64, BN)])
                            half = tf.schedule((staged[64:, :], there), op=T.copy_async_tensor())
                            out = tf.insert_slice(out, half, (m + 64, n))
        return out
