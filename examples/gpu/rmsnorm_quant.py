"""RMSNorm, then fp8 quantisation of each block of 128 by its largest magnitude.
Shows two collectives of different reach: a row's sum over warps and lanes, a block's over lanes."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

TOKENS, HIDDEN = 8192, 4096
CTAS, ROWS, WARPS, VEC = 264, 2, 4, 4
BLOCK = 32 * VEC
BLOCKS = HIDDEN // BLOCK
PER = BLOCKS // WARPS
EPS, SMALLEST, LARGEST = 1e-6, 1e-12, 448.0


@module(
    entry="rmsnorm_quant",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", ROWS * WARPS * 32)),
)
class RmsnormQuant:
    @func
    def rmsnorm_quant(
        x: Tensor[(TOKENS, HIDDEN), "bf16"], weight: ConstTensor[(HIDDEN,), "bf16"]
    ) -> (Tensor[(TOKENS, HIDDEN), "fp8e4m3"], Tensor[(TOKENS, BLOCKS), "f32"]):
        q = tf.empty(Tensor[(TOKENS, HIDDEN), "fp8e4m3"])
        scales = tf.empty(Tensor[(TOKENS, BLOCKS), "f32"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(ROWS, WARPS, 32), names=("row", "warp", "lane")) as t:
                gain = tf.cast(tf.reshard(weight, (PER, WARPS @ t.warp, 32 @ t.lane, VEC), "rmem"), "f32")
                for task in range(cta.block, TOKENS // ROWS, CTAS):
                    row = task * ROWS
                    held = tf.reshard(x[row:row + ROWS, :], (ROWS @ t.row, PER, WARPS @ t.warp, 32 @ t.lane, VEC), "rmem")
                    wide = tf.cast(held, "f32")
                    total = tf.reshard(tf.reduce(tf.square(wide), (1,), True, "sum"), (ROWS @ t.row, 1))
                    normed = wide * tf.rsqrt(total * (1.0 / HIDDEN) + EPS) * gain
                    blocks = tf.reshape(normed, (ROWS, BLOCKS, BLOCK))
                    most = tf.reshard(tf.reduce(blocks, (2,), True, "abs_max"), (ROWS @ t.row, PER, WARPS @ t.warp, 1))
                    scale = tf.maximum(most, SMALLEST) / LARGEST
                    small = tf.cast(tf.clamp(blocks / scale, -LARGEST, LARGEST), "fp8e4m3")
                    q = tf.insert_slice(q, tf.reshape(small, (ROWS, HIDDEN)), (row, 0))
                    scales = tf.insert_slice(scales, tf.reshape(scale, (ROWS, BLOCKS)), (row, 0))
        return q, scales
