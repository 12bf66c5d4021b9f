"""Residual + RMSNorm over rows of any length, each core R of its rows side by side, so that each has a
prefetcher of its own and the weight is read once for all of them. While the results of some rows
are stored, the next are read, added, stored and their squares added up, so that memory is read and
written all the time. Both outputs are stored past the caches, and what comes a step later is asked
for from memory. Of a step all loads come first: a load behind a store at the same place of a page
may wait for it. A core keeps the sums of its rows, each in the place of the one that it follows.
The first step stores results that the second stores anew; the last reads and adds what was read.
Two outputs, one weight."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 19, 333, "bf16"
TARGET, CORES, LANES = "x86_64.generic", 2, 8
SIZE = 4 if DTYPE == "f32" else 2
R, VECS = 2, 2 if SIZE == 2 or LANES > 8 else 1  # as many as registers hold: 32 of 16 lanes, 16 of 8
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
SKEW = 5 * CHUNK  # rows that are kept begin at different places of a page: else a load behind a store waits
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD = R * COLS
STEPS = ceildiv(ROWS, CORES * R)
PART = STEPS * R
EPS = 1e-5


@module(
    entry="rmsnorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class RmsNorm:
    @func
    def rmsnorm(
        h: Tensor[(ROWS, COLS), DTYPE],
        mix: Tensor[(ROWS, COLS), DTYPE],
        gamma: ConstTensor[(COLS,), DTYPE],
    ) -> (Tensor[(ROWS, COLS), DTYPE], Tensor[(ROWS, COLS), DTYPE]):
        h_wide = tf.pad(h, (0, WIDE - COLS, 0, CORES * PART - ROWS), 0.0)
        mix_wide = tf.pad(mix, (0, WIDE - COLS, 0, CORES * PART - ROWS), 0.0)
        gamma_wide = tf.pad(gamma, (0, WIDE - COLS), 0.0)
        residual = tf.empty(Tensor[(CORES * PART, WIDE), DTYPE])
        out = tf.empty(Tensor[(CORES * PART, WIDE), DTYPE])
        kept = tf.empty(Tensor[(CORES, R, WIDE + SKEW), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for r in range(R):
                    for c in tf.tile(WIDE, CHUNK):
                        none = tf.zeros(Tensor[(1, 1, CHUNK), DTYPE, (1, 1, VECS, LANES @ t.lane), "rmem"])
                        kept = tf.insert_slice(kept, none, (cores.core, r, c.start))
                scale = tf.zeros(Tensor[(R, 1), "f32", "rmem"])
                for step in range(STEPS + 1):
                    row = cores.core * PART + max(step - 1, 0) * R
                    after = cores.core * PART + min(step, STEPS - 1) * R
                    squares = tf.zeros(Tensor[(R, LANES), "f32", (R, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        gain = tf.reshard(gamma_wide[c], (VECS, LANES @ t.lane), "rmem")
                        sum_ = tf.reshard(kept[cores.core, 0:R, c], (R, VECS, LANES @ t.lane), "rmem")
                        normed = tf.cast(tf.cast(sum_, "f32") * scale, DTYPE) * gain
                        place = tf.empty(Tensor[(R, CHUNK), DTYPE, (R, VECS, LANES @ t.lane), "rmem"])
                        a = tf.schedule((h_wide[after:after + R, c], place), op=T.x86.LoadAhead(), prefetch=AHEAD)
                        place = tf.empty(Tensor[(R, CHUNK), DTYPE, (R, VECS, LANES @ t.lane), "rmem"])
                        b = tf.schedule((mix_wide[after:after + R, c], place), op=T.x86.LoadAhead(), prefetch=AHEAD)
                        added = a + b
                        kept = tf.insert_slice(kept, tf.reshape(added, (1, R, CHUNK)), (cores.core, 0, c.start))
                        wide = tf.reshape(tf.cast(added, "f32"), (R, VECS, LANES))
                        for k in tuple(range(VECS)):
                            squares = tf.fma(wide[:, k], wide[:, k], squares)
                        made = tf.schedule((normed, tf.empty(Tensor[(R, CHUNK), DTYPE])), op=store)
                        out = tf.insert_slice(out, made, (row, c.start))
                        sums = tf.schedule((added, tf.empty(Tensor[(R, CHUNK), DTYPE])), op=store)
                        residual = tf.insert_slice(residual, sums, (after, c.start))
                    total = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (R, 1))
                    scale = tf.rsqrt(total * (1.0 / COLS) + EPS)
        return residual[:ROWS, :COLS], out[:ROWS, :COLS]
