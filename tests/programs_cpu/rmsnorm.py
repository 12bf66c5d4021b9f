"""Residual + RMSNorm over rows of any length, each core a row at a time, two rows at once: while
the result of one is stored, the next is read, added, stored and its squares added up, so that
memory is read and written all the time. Both outputs are stored past the caches, and what comes
a step later is asked for from memory. Chunks of VECS vectors go through STREAMS parts of the row
side by side, so that each has a prefetcher of its own. A core keeps the sums of its row, each in
the place of the one that it follows. Two outputs, one weight."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 19, 333, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
STREAMS = max(1, min(2, COLS * SIZE // 4096))  # of four tensors; parts of a page or more: two in one page disturb each other
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
PART = WIDE // STREAMS
SKEW = 5 * CHUNK  # parts that are kept begin at different places of a page: else a load behind a store waits
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD = CORES * COLS
STEPS = ceildiv(ROWS, CORES)
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
        h_wide = tf.pad(h, (0, WIDE - COLS, 0, (STEPS + 1) * CORES - ROWS), 0.0)
        mix_wide = tf.pad(mix, (0, WIDE - COLS, 0, (STEPS + 1) * CORES - ROWS), 0.0)
        gamma_wide = tf.pad(gamma, (0, WIDE - COLS), 0.0)
        residual = tf.empty(Tensor[((STEPS + 1) * CORES, WIDE), DTYPE])
        out = tf.empty(Tensor[((STEPS + 1) * CORES, WIDE), DTYPE])
        kept = tf.empty(Tensor[(CORES, STREAMS, PART + SKEW), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for stream in range(STREAMS):
                    for c in tf.tile(PART, CHUNK):
                        none = tf.zeros(Tensor[(1, 1, CHUNK), DTYPE, (1, 1, VECS, LANES @ t.lane), "rmem"])
                        kept = tf.insert_slice(kept, none, (cores.core, stream, c.start))
                scale = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                for step in range(STEPS + 1):
                    row = step * CORES + cores.core
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            mine = kept[cores.core, stream:stream + 1, c]
                            sum_ = tf.reshard(mine, (1, VECS, LANES @ t.lane), "rmem")
                            gain = tf.reshard(gamma_wide[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            normed = tf.cast(tf.cast(sum_, "f32") * scale, DTYPE) * gain
                            made = tf.schedule((normed, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
                            place = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            a = tf.schedule((h_wide[row:row + 1, at:at + CHUNK], place), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            place = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            b = tf.schedule((mix_wide[row:row + 1, at:at + CHUNK], place), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            added = a + b
                            kept = tf.insert_slice(kept, tf.reshape(added, (1, 1, CHUNK)), (cores.core, stream, c.start))
                            sums = tf.schedule((added, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            residual = tf.insert_slice(residual, sums, (row, at))
                            squares = squares + tf.square(tf.cast(added, "f32"))
                    total = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(total * (1.0 / COLS) + EPS)
        return residual[:ROWS, :COLS], out[CORES:CORES + ROWS, :COLS]
