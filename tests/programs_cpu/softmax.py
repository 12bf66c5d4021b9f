"""Softmax over rows of any length, each core a row at a time, three rows at once: while the
result of one is stored, past the caches, the powers of the next are taken, and the row after
that is read and its maximum found, so that memory is read and written all the time. What comes
a step later is asked for from memory. What is stored past the caches is stored last: a load
behind it at the same place of a page would wait for it. Chunks of VECS vectors go through STREAMS
parts of the row side by side, so that each has a prefetcher of its own. Each core keeps the powers
of a row in memory that no other reads, each in the place of the one that it follows; a row that
was read is in a cache. Powers are those of 2: the differences are multiplied by log2(e). What is
beyond a row is minus infinity."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 37, 300, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
STREAMS = max(1, min(4, COLS * SIZE // 4096))  # parts of a page or more: two in one page disturb each other
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
PART = WIDE // STREAMS
SKEW = 5 * CHUNK  # parts that are kept begin at different places of a page: else a load behind a store waits
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD = CORES * COLS
STEPS = ceildiv(ROWS, CORES)
LEAST, LOG2E = float("-inf"), 1.4426950408889634


@module(
    entry="softmax",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), DTYPE]) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS, CORES, (STEPS + 2) * CORES - ROWS), LEAST)
        out = tf.empty(Tensor[((STEPS + 2) * CORES, WIDE), DTYPE])
        powers = tf.empty(Tensor[(CORES, STREAMS, PART + SKEW), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for stream in range(STREAMS):
                    for c in tf.tile(PART, CHUNK):
                        none = tf.zeros(Tensor[(1, 1, CHUNK), "f32", (1, 1, VECS, LANES @ t.lane), "rmem"])
                        powers = tf.insert_slice(powers, none, (cores.core, stream, c.start))
                top = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                scale = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                for step in range(STEPS + 2):
                    row = step * CORES + cores.core
                    sums = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    most = sums + LEAST
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            done = tf.reshard(powers[cores.core, stream:stream + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                            v = tf.reshard(padded[row:row + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                            power = tf.exp2((tf.cast(v, "f32") - top) * LOG2E)
                            powers = tf.insert_slice(powers, tf.reshape(power, (1, 1, CHUNK)), (cores.core, stream, c.start))
                            sums = sums + power
                            later = padded[row + CORES:row + CORES + 1, at:at + CHUNK]
                            held = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            w = tf.schedule((later, held), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            most = tf.maximum(most, tf.cast(w, "f32"))
                            made = tf.schedule((tf.cast(done * scale, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
                    scale = 1.0 / tf.reshard(tf.reduce(sums, (1,), True, "sum"), (1, 1))
                    top = tf.reshard(tf.reduce(most, (1,), True, "max"), (1, 1))
        return out[2 * CORES:2 * CORES + ROWS, :COLS]
