"""FlashAttention-2 forward, causal, grouped heads: online softmax, P a register operand.
Shows a triangular loop, two rings filled by one producer warp, and values carried in registers."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

BATCH, Q_LEN, KV_LEN = 2, 512, 4096
Q_HEADS, KV_HEADS, D = 32, 8, 128
SHARE = Q_HEADS // KV_HEADS
BM, BN = 128, 128
BLOCKS = Q_LEN // BM
SHIFT = KV_LEN - Q_LEN
STAGES = 2
SCALE = D**-0.5 * 1.4426950408889634  # exponentials are powers of two
MASKED = -1.0e30

scores = T.cuda.sm90.Wgmma(n=BN, dtype="f16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K, b_major=T.cuda.sm90.Major.K)
values = T.cuda.sm90.Wgmma(n=D, dtype="f16", form=T.cuda.sm90.Form.RS)


@module(
    entry="attention",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", BATCH * Q_HEADS * BLOCKS), Topology("thread", 384)),
)
class FlashAttention:
    @func
    def attention(
        q: Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"],
        k: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "f16"],
        v: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "f16"],
    ) -> Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"]:
        out = tf.empty(Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"])
        with Mesh(("cta",), layout=(BLOCKS, BATCH, Q_HEADS), names=("block", "batch", "head")) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                m = cta.block * BM
                group = cta.head // SHARE
                with threads[0, :32] as load:
                    q_tile = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"])
                    queries = tf.schedule((q[cta.batch, m:m + BM, cta.head, :], q_tile), op=T.copy_async_tensor())
                with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    acc = tf.zeros(Tensor[(BM, D), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, D // 8, 4 @ use.l4, 2), "rmem"])
                    most = tf.full_like(tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1), "rmem"]), MASKED)
                    total = tf.zeros(Tensor[(BM, 1), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1) @ {use.l4 @ P("sum")}, "rmem"])
                    rows = tf.arange(Tensor[(BM,), "i32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8), "rmem"], m + SHIFT)
                for n in range(0, m + BM + SHIFT, BN):
                    with threads[0, :32] as load:
                        k_ring = tf.empty(Tensor[(BN, D), "f16", Layout((BN, (D // 64, 64)), (64, (BN * 64, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        keys = tf.schedule((k[cta.batch, n:n + BN, group, :], k_ring), op=T.copy_async_tensor())
                        v_ring = tf.empty(Tensor[(BN, D), "f16", Layout((BN, (D // 64, 64)), (64, (BN * 64, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        vals = tf.schedule((v[cta.batch, n:n + BN, group, :], v_ring), op=T.copy_async_tensor())
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        zero = tf.zeros(Tensor[(BM, BN), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BN // 8, 4 @ use.l4, 2), "rmem"])
                        s = tf.schedule((zero, queries, tf.transpose(keys, (1, 0))), op=T.tiled_mma(atom=scores), repeat=(2, 1, D // 16))
                        columns = tf.arange(Tensor[(BN,), "i32", (BN // 8, 4 @ use.l4, 2), "rmem"], n)
                        seen = tf.where(columns[None, :] <= rows[:, None], s * SCALE, MASKED)
                        here = tf.reshard(tf.reduce(seen, (1,), True, "max"), (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
                        higher = tf.maximum(most, here)
                        power = tf.exp2(seen - higher)
                        fade = tf.exp2(most - higher)
                        total = total * fade + tf.reduce(power, (1,), True, "sum")
                        acc = tf.schedule((acc * fade, tf.cast(power, "f16"), vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BN // 16))
                        most = higher
                with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    whole = tf.reshard(total, (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
                    done = tf.reshape(tf.cast(acc / whole, "f16"), (1, BM, 1, D))
                    out = tf.insert_slice(out, done, (cta.batch, m, cta.head, 0))
        return out
