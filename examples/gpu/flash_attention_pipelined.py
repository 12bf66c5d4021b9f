"""FlashAttention forward, causal, grouped heads, two products in flight: scores of the next
block are issued before the values of this one; the masked block comes first, apart."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

BATCH, Q_LEN, KV_LEN = 2, 512, 4096
Q_HEADS, KV_HEADS, D = 32, 8, 128
SHARE = Q_HEADS // KV_HEADS
BM = 128
BLOCKS = Q_LEN // BM
SHIFT = KV_LEN - Q_LEN
STAGES = 2
SCALE = D**-0.5 * 1.4426950408889634  # exponentials are powers of two
MASKED = -1.0e30

assert SHIFT % BM == 0, "only the first block of keys may be masked"

scores = T.cuda.sm90.Wgmma(n=BM, dtype="f16", form=T.cuda.sm90.Form.SS, a_major=T.cuda.sm90.Major.K, b_major=T.cuda.sm90.Major.K)
values = T.cuda.sm90.Wgmma(n=D, dtype="f16", form=T.cuda.sm90.Form.RS)


@module(
    entry="attention",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", BATCH * Q_HEADS * BLOCKS), Topology("thread", 384)),
)
class FlashAttentionPipelined:
    @func
    def attention(
        q: Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"],
        k: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "f16"],
        v: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "f16"],
    ) -> Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"]:
        out = tf.empty(Tensor[(BATCH, Q_LEN, Q_HEADS, D), "f16"])
        with Mesh(("cta",), layout=(BLOCKS, BATCH, Q_HEADS), names=("block", "batch", "head")) as cta:
            with Mesh(("thread",), layout=(3, 128), names=("group", "lane")) as threads:
                m = (BLOCKS - 1 - cta.block) * BM  # longest first
                last = m + SHIFT
                group = cta.head // SHARE
                with threads[0, :32] as load:
                    q_tile = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"])
                    queries = tf.schedule((q[cta.batch, m:m + BM, cta.head, :], q_tile), op=T.copy_async_tensor())
                    k_tile = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"])
                    first_keys = tf.schedule((k[cta.batch, last:last + BM, group, :], k_tile), op=T.copy_async_tensor())
                with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    acc = tf.zeros(Tensor[(BM, D), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, D // 8, 4 @ use.l4, 2), "rmem"])
                    first_zero = tf.zeros(Tensor[(BM, BM), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BM // 8, 4 @ use.l4, 2), "rmem"])
                    first = tf.schedule((first_zero, queries, tf.transpose(first_keys, (1, 0))), op=T.tiled_mma(atom=scores), repeat=(2, 1, D // 16))
                    rows = tf.arange(Tensor[(BM,), "i32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8), "rmem"])
                    columns = tf.arange(Tensor[(BM,), "i32", (BM // 8, 4 @ use.l4, 2), "rmem"])
                    masked = tf.where(columns[None, :] <= rows[:, None], first, MASKED)
                    most = tf.reshard(tf.reduce(masked, (1,), True, "max"), (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
                    first_power = tf.exp2(masked * SCALE - most * SCALE)
                    total = tf.reduce(first_power, (1,), True, "sum")
                    share = tf.schedule((first_power, tf.empty(Tensor[(BM, BM), "f16", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BM // 8, 4 @ use.l4, 2), "rmem"])), op=T.cast("f16"))
                for back in range(BM, last + BM, BM):
                    n = last - back
                    with threads[0, :32] as load:
                        k_ring = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        keys = tf.schedule((k[cta.batch, n:n + BM, group, :], k_ring), op=T.copy_async_tensor())
                        v_ring = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"], buffers=STAGES)
                        vals = tf.schedule((v[cta.batch, n + BM:n + 2 * BM, group, :], v_ring), op=T.copy_async_tensor())
                    with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                        zero = tf.zeros(Tensor[(BM, BM), "f32", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BM // 8, 4 @ use.l4, 2), "rmem"])
                        s = tf.schedule((zero, queries, tf.transpose(keys, (1, 0))), op=T.tiled_mma(atom=scores), repeat=(2, 1, D // 16))
                        acc = tf.schedule((acc, share, vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BM // 16))
                        here = tf.reshard(tf.reduce(s, (1,), True, "max"), (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
                        higher = tf.maximum(most, here)
                        power = tf.exp2(s * SCALE - higher * SCALE)
                        fade = tf.exp2(most * SCALE - higher * SCALE)
                        total = total * fade + tf.reduce(power, (1,), True, "sum")
                        acc = acc * fade
                        share = tf.schedule((power, tf.empty(Tensor[(BM, BM), "f16", (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, BM // 8, 4 @ use.l4, 2), "rmem"])), op=T.cast("f16"))
                        most = higher
                with threads[0, :32] as load:
                    v_tile = tf.empty(Tensor[(BM, D), "f16", Layout((BM, (D // 64, 64)), (64, (BM * 64, 1))) | Swizzle(3, 4, 3), "smem"])
                    last_vals = tf.schedule((v[cta.batch, 0:BM, group, :], v_tile), op=T.copy_async_tensor())
                with Mesh(threads[1:3, :], layout=(2, 4, 8, 4), names=("g", "w", "l8", "l4")) as use:
                    acc = tf.schedule((acc, share, last_vals), op=T.tiled_mma(atom=values), repeat=(2, 1, BM // 16))
                    whole = tf.reshard(total, (2 @ use.g, 4 @ use.w, 2, 8 @ use.l8, 1))
                    done = tf.reshape(tf.cast(acc / whole, "f16"), (1, BM, 1, D))
                    out = tf.insert_slice(out, done, (cta.batch, m, cta.head, 0))
        return out
