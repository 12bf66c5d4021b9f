"""A vector times a matrix, the sum split over CTAs and warps, completed by one reshard.
Shows a partial value carried through a loop, and a collective that crosses CTAs."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

K = 8192
SPLITS, COLS = 4, 32
WARPS, VEC, BK = 8, 8, 64
DEPTH, N = K // SPLITS, COLS * 32 * VEC
PER = BK // WARPS


@module(
    entry="product",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", SPLITS * COLS), Topology("thread", WARPS * 32)),
)
class SplitKReshard:
    @func
    def product(x: Tensor[(K,), "bf16"], w: Tensor[(K, N), "bf16"]) -> Tensor[(N,), "f32"]:
        xs = tf.reshape(x, (SPLITS, DEPTH))
        ws = tf.reshape(w, (SPLITS, DEPTH, N))
        with Mesh(("cta",), layout=(SPLITS, COLS), names=("split", "col")) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("warp", "lane")) as t:
                acc = tf.zeros(Tensor[(N,), "f32", (COLS @ cta.col, 32 @ t.lane, VEC) @ {cta.split @ P("sum"), t.warp @ P("sum")}, "rmem"])
                for k in tf.tile(DEPTH, BK):
                    left = tf.reshard(xs[:, k], (SPLITS @ cta.split, WARPS @ t.warp, PER), "rmem")
                    right = tf.reshard(ws[:, k, :], (SPLITS @ cta.split, WARPS @ t.warp, PER, COLS @ cta.col, 32 @ t.lane, VEC), "rmem")
                    terms = tf.cast(left, "f32")[:, :, None] * tf.cast(right, "f32")
                    acc = acc + tf.reduce(terms, (0, 1), kind="sum")
                return tf.reshard(acc, (N,), "gmem")
