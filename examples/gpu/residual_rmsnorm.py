"""The first post's residual + RMSNorm: every CTA holds the whole row, padded to the threads.
Shows padding and views outside the meshes, and a sum over threads written through smem."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

HIDDEN, THREADS, CTAS = 2688, 256, 132
PER = ceildiv(HIDDEN, THREADS)
EPS = 1e-5


@module(
    entry="residual_norm",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTAS), Topology("thread", THREADS)),
)
class Norm:
    @func
    def residual_norm(
        h: Tensor[(1, 1, HIDDEN), "bf16"],
        mix: Tensor[(1, 1, HIDDEN), "bf16"],
        gamma: ConstTensor[(HIDDEN,), "bf16"],
    ) -> (Tensor[(1, 1, HIDDEN), "bf16"], Tensor[(1, 1, HIDDEN), "bf16"]):
        fill = THREADS * PER - HIDDEN
        h_pad = tf.reshape(tf.pad(h, (0, fill), 0.0), (1, 1, THREADS, PER))
        mix_pad = tf.reshape(tf.pad(mix, (0, fill), 0.0), (1, 1, THREADS, PER))
        gamma_pad = tf.reshape(tf.pad(gamma, (0, fill), 0.0), (1, 1, THREADS, PER))
        with Mesh(("cta",), layout=(CTAS,), names=("x",)) as cta:
            with Mesh(("thread",), layout=(THREADS,), names=("y",)) as thread:
                h_r = tf.reshard(h_pad, (1, 1, THREADS @ thread.y, PER), "rmem")
                mix_r = tf.reshard(mix_pad, (1, 1, THREADS @ thread.y, PER), "rmem")
                gamma_r = tf.reshard(gamma_pad, (1, 1, THREADS @ thread.y, PER), "rmem")
                next_h = tf.cast(h_r + mix_r, "bf16")

                local_sq = tf.reduce(
                    tf.square(tf.cast(next_h, "f32")), (-1,), True, ReduceKind.SUM
                )
                all_sq = tf.reshard(local_sq, (1, 1, THREADS, 1), "smem")
                sum_sq = tf.reduce(all_sq, (-2,), True, ReduceKind.SUM)
                sum_sq_r = tf.reshard(sum_sq, (1, 1, 1, 1), "rmem")

                normed = tf.cast(
                    tf.cast(next_h, "f32") * tf.rsqrt(sum_sq_r * (1.0 / HIDDEN) + EPS),
                    "bf16",
                ) * gamma_r
                residual = tf.reshard(next_h, (1, 1, THREADS, PER), "gmem")
                out = tf.reshard(normed, (1, 1, THREADS, PER), "gmem")
        flat_res = tf.reshape(residual, (1, 1, THREADS * PER))
        flat_out = tf.reshape(out, (1, 1, THREADS * PER))
        return flat_res[:, :, :HIDDEN], flat_out[:, :, :HIDDEN]
