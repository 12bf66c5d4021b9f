"""A GEMM for the H200: one warp loads, two warpgroups multiply, and one warp of each stores its
half of the tile, so that loads of the next tile stand behind no store. B_ROWS="n": b is (N, K).
`python bench/gpu/kernels.py gemm gemm_t` times it against torch."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 17408, 5120
B_ROWS = "k"
BM, BN, BK = 128, 256, 64
GM, GN = M // BM, N // BN
CTAS = 132
STAGES = 3
GROUP = 8
SHAPE, NAMES = (2, 4, 8, 4), ("group", "warp", "lane8", "lane4")

wgmma = T.cuda.sm90.Wgmma(
    n=256, dtype="bf16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K
)


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", 384)),
)
class GemmHalves:
    @func
    def gemm(
        a: Tensor[(M, K), "bf16"], b: Tensor[(K, N) if B_ROWS == "k" else (N, K), "bf16"]
    ) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("at",)) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as t:
                for task in range(cta.at, GM * GN, CTAS):
                    strip = task // (GROUP * GN)
                    m = (strip * GROUP + task % GROUP) * BM
                    n = (task // GROUP % GN) * BN
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
                                    32,
                                    4 @ use.lane4,
                                    2,
                                ),
                                "rmem",
                            ]
                        )
                    for k in tf.tile(K, BK):
                        with t[0, :32]:
                            left = tf.empty(
                                Tensor[
                                    (BM, BK),
                                    "bf16",
                                    Layout((128, 64), (64, 1)) | Swizzle(3, 4, 3),
                                    "smem",
                                ],
                                buffers=STAGES,
                            )
                            lhs = tf.schedule((a[m : m + BM, k], left), op=T.copy_async_tensor())
                            if B_ROWS == "k":
                                right = tf.empty(
                                    Tensor[
                                        (BK, BN),
                                        "bf16",
                                        Layout((64, (4, 64)), (64, (4096, 1))) | Swizzle(3, 4, 3),
                                        "smem",
                                    ],
                                    buffers=STAGES,
                                )
                                rhs = tf.schedule((b[k, n : n + BN], right), op=T.copy_async_tensor())
                            else:
                                right = tf.empty(
                                    Tensor[
                                        (BN, BK),
                                        "bf16",
                                        Layout((256, 64), (64, 1)) | Swizzle(3, 4, 3),
                                        "smem",
                                    ],
                                    buffers=STAGES,
                                )
                                tall = tf.schedule((b[n : n + BN, k], right), op=T.copy_async_tensor())
                                rhs = tf.transpose(tall, (1, 0))
                        with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                            acc = tf.schedule((acc, lhs, rhs), op=T.tiled_mma(atom=wgmma))
                    with Mesh(t[1:3, :], layout=SHAPE, names=NAMES) as use:
                        tile = tf.cast(acc, dtype="bf16")
                        staging = tf.empty(
                            Tensor[
                                (BM, BN),
                                "bf16",
                                Layout((128, (4, 64)), (64, (8192, 1))) | Swizzle(3, 4, 3),
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
