from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

M, N, K = 8192, 17408, 5120
BM, BN, BK = 128, 256, 64
GM, GN = M // BM, N // BN


@module(
    entry="gemm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", GM * GN),),
)
class GEMM_GRID:
    @func
    def gemm(a: Tensor[(M, K), "bf16"], b: Tensor[(K, N), "bf16"]) -> Tensor[(M, N), "bf16"]:
        out = tf.empty(Tensor[(M, N), "bf16"])
        with Mesh(("cta",), layout=(GM, GN), names=("bm", "bn")) as cta:
            m = cta.bm * BM
            n = cta.bn * BN
            acc = tf.zeros(Tensor[(BM, BN), "f32", "rmem"])
            for k in tf.tile(K, BK):
                lhs = tf.reshard(a[m:m + BM, k], storage="smem")
                rhs = tf.reshard(b[k, n:n + BN], storage="smem")
                part = tf.matmul(lhs, rhs, out_dtype="f32")
                acc = acc + part
            tile = tf.reshard(tf.cast(acc, "bf16"), storage="gmem")
            out = tf.insert_slice(out, tile, (m, n))
        return out
