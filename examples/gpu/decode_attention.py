"""Attention of one query token: the context split over CTAs and warps, then merged.
Shows online softmax per warp on plain arithmetic, and log-sum-exp merges in a CTA and a kernel."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

BATCH, KV_LEN = 8, 8192
Q_HEADS, KV_HEADS, D = 32, 8, 128
SHARE = Q_HEADS // KV_HEADS
SPLITS, WARPS, PER = 8, 4, 2
KEYS = 2 * PER  # per warp and step: two rows of 16 lanes
BN = WARPS * KEYS
DEPTH = KV_LEN // SPLITS
LANES = 16
VEC = D // LANES
SCALE = D**-0.5 * 1.4426950408889634  # exponentials are powers of two
LEAST = -1.0e30


@module(
    entry="attention",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(
        Topology("cta", BATCH * max(SPLITS * KV_HEADS, Q_HEADS)),
        Topology("thread", WARPS * 32),
    ),
)
class DecodeAttention:
    @func
    def attention(
        q: Tensor[(BATCH, Q_HEADS, D), "bf16"],
        k: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "bf16"],
        v: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "bf16"],
    ) -> Tensor[(BATCH, Q_HEADS, D), "bf16"]:
        most, total, acc = partial(q, k, v)
        return merge(most, total, acc)

    @func
    def partial(
        q: Tensor[(BATCH, Q_HEADS, D), "bf16"],
        k: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "bf16"],
        v: Tensor[(BATCH, KV_LEN, KV_HEADS, D), "bf16"],
    ):
        mosts = tf.empty(Tensor[(SPLITS, BATCH, Q_HEADS), "f32"])
        totals = tf.empty(Tensor[(SPLITS, BATCH, Q_HEADS), "f32"])
        accs = tf.empty(Tensor[(SPLITS, BATCH, Q_HEADS, D), "f32"])
        with Mesh(("cta",), layout=(SPLITS, BATCH, KV_HEADS), names=("split", "batch", "group")) as cta:
            with Mesh(("thread",), layout=(WARPS, 2, LANES), names=("warp", "pair", "lane")) as t:
                head = cta.group * SHARE
                queries = tf.cast(tf.reshard(q[cta.batch, head:head + SHARE, :], (SHARE, LANES @ t.lane, VEC), "rmem"), "f32") * SCALE
                most = tf.full_like(tf.zeros(Tensor[(WARPS, SHARE, 1), "f32", (WARPS @ t.warp, SHARE, 1), "rmem"]), LEAST)
                total = tf.zeros(Tensor[(WARPS, SHARE, 1), "f32", (WARPS @ t.warp, SHARE, 1) @ {t.pair @ P("sum")}, "rmem"])
                acc = tf.zeros(Tensor[(WARPS, SHARE, D), "f32", (WARPS @ t.warp, SHARE, LANES @ t.lane, VEC) @ {t.pair @ P("sum")}, "rmem"])
                for step in range(DEPTH // BN):
                    n = cta.split * DEPTH + step * BN
                    keys = tf.cast(tf.reshard(k[cta.batch, n:n + BN, cta.group, :], (WARPS @ t.warp, PER, 2 @ t.pair, LANES @ t.lane, VEC), "rmem"), "f32")
                    vals = tf.cast(tf.reshard(v[cta.batch, n:n + BN, cta.group, :], (WARPS @ t.warp, PER, 2 @ t.pair, LANES @ t.lane, VEC), "rmem"), "f32")
                    keys = tf.reshape(keys, (WARPS, 1, KEYS, D))
                    vals = tf.reshape(vals, (WARPS, 1, KEYS, D))
                    terms = tf.reduce(queries[None, :, None, :] * keys, (3,), kind="sum")
                    s = tf.reshard(terms, (WARPS @ t.warp, SHARE, PER, 2 @ t.pair))
                    here = tf.reshard(tf.reduce(s, (2,), True, "max"), (WARPS @ t.warp, SHARE, 1))
                    higher = tf.maximum(most, here)
                    power = tf.exp2(s - higher)
                    fade = tf.exp2(most - higher)
                    total = total * fade + tf.reduce(power, (2,), True, "sum")
                    acc = acc * fade + tf.reduce(power[:, :, :, None] * vals, (2,), kind="sum")
                    most = higher
                top = tf.reshard(tf.reduce(most, (0,), True, "max"), (1, SHARE, 1))
                share = tf.exp2(most - top)
                warp_total = tf.reshard(total, (WARPS @ t.warp, SHARE, 1)) * share
                warp_acc = tf.reshard(acc, (WARPS @ t.warp, SHARE, LANES @ t.lane, VEC)) * share
                cta_total = tf.reshard(tf.reduce(warp_total, (0,), True, "sum"), (1, SHARE, 1))
                cta_acc = tf.reshard(tf.reduce(warp_acc, (0,), True, "sum"), (1, SHARE, LANES @ t.lane, VEC))
                mosts = tf.insert_slice(mosts, tf.reshape(top, (1, 1, SHARE)), (cta.split, cta.batch, head))
                totals = tf.insert_slice(totals, tf.reshape(cta_total, (1, 1, SHARE)), (cta.split, cta.batch, head))
                accs = tf.insert_slice(accs, tf.reshape(cta_acc, (1, 1, SHARE, D)), (cta.split, cta.batch, head, 0))
        return mosts, totals, accs

    @func
    def merge(
        mosts: Tensor[(SPLITS, BATCH, Q_HEADS), "f32"],
        totals: Tensor[(SPLITS, BATCH, Q_HEADS), "f32"],
        accs: Tensor[(SPLITS, BATCH, Q_HEADS, D), "f32"],
    ) -> Tensor[(BATCH, Q_HEADS, D), "bf16"]:
        out = tf.empty(Tensor[(BATCH, Q_HEADS, D), "bf16"])
        with Mesh(("cta",), layout=(BATCH, Q_HEADS), names=("batch", "head")) as cta:
            with Mesh(("thread",), layout=(WARPS, 32), names=("warp", "lane")) as t:
                b = cta.batch
                h = cta.head
                most = tf.reshard(mosts[:, b, h:h + 1], (SPLITS @ t.warp, 1), "rmem")
                total = tf.reshard(totals[:, b, h:h + 1], (SPLITS @ t.warp, 1), "rmem")
                acc = tf.reshard(accs[:, b, h, :], (SPLITS @ t.warp, D @ t.lane), "rmem")
                top = tf.reshard(tf.reduce(most, (0,), True, "max"), (1, 1))
                share = tf.exp2(most - top)
                whole = tf.reshard(tf.reduce(total * share, (0,), True, "sum"), (1, 1))
                summed = tf.reshard(tf.reduce(acc * share, (0,), True, "sum"), (1, D @ t.lane))
                done = tf.reshape(tf.cast(summed / whole, "bf16"), (1, 1, D))
                out = tf.insert_slice(out, done, (b, h, 0))
        return out
