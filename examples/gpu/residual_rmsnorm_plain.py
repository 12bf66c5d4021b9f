"""Residual + RMSNorm over many tokens, a row per CTA and step, no padding.
Shows the first post's fragment as a batch kernel: weights loaded once, a sum over the CTA."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

TOKENS, HIDDEN = 8192, 2688
CTAS, THREADS, VEC = 528, 96, 4
PER = HIDDEN // (THREADS * VEC)
EPS = 1e-5


@module(
    entry="residual_norm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS)),
)
class NormPlain:
    @func
    def residual_norm(
        h: Tensor[(TOKENS, HIDDEN), "bf16"],
        mix: Tensor[(TOKENS, HIDDEN), "bf16"],
        gamma: ConstTensor[(HIDDEN,), "bf16"],
    ) -> (Tensor[(TOKENS, HIDDEN), "bf16"], Tensor[(TOKENS, HIDDEN), "bf16"]):
        residual = tf.empty(Tensor[(TOKENS, HIDDEN), "bf16"])
        out = tf.empty(Tensor[(TOKENS, HIDDEN), "bf16"])
        with Mesh(("cta",), layout=(CTAS,), names=("block",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("lane",)) as t:
                gain = tf.reshard(gamma, (PER, THREADS @ t.lane, VEC), "rmem")
                for row in range(cta.block, TOKENS, CTAS):
                    h_r = tf.reshard(h[row:row + 1, :], (1, PER, THREADS @ t.lane, VEC), "rmem")
                    mix_r = tf.reshard(mix[row:row + 1, :], (1, PER, THREADS @ t.lane, VEC), "rmem")
                    added = h_r + mix_r
                    wide = tf.cast(added, "f32")
                    total = tf.reshard(tf.reduce(tf.square(wide), (1,), True, "sum"), (1, 1))
                    normed = tf.cast(wide * tf.rsqrt(total * (1.0 / HIDDEN) + EPS), "bf16") * gain
                    residual = tf.insert_slice(residual, added, (row, 0))
                    out = tf.insert_slice(out, normed, (row, 0))
        return residual, out
