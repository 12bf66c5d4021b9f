"""LayerNorm over rows of any length, a row at a time on each core, in three passes over chunks
of VECS vectors: the mean, the spread, the result. While a row's result is stored, past the
caches, the next row is read, added up and kept in its place: memory is read and written all the time. Both
go through STREAMS parts of the row side by side, so that each has a prefetcher of its own.
Elements beyond a row do not count."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
STREAMS, SIZE = 4, 4 if DTYPE == "f32" else 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
PART = WIDE // STREAMS
SKEW = 5 * CHUNK  # parts that are kept begin at different places of a page: else a load behind a store waits
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
STEPS = ceildiv(ROWS, CORES)
EPS = 1e-5


@module(
    entry="layernorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class LayerNorm:
    @func
    def layernorm(
        x: Tensor[(ROWS, COLS), DTYPE],
        weight: ConstTensor[(COLS,), DTYPE],
        bias: ConstTensor[(COLS,), DTYPE],
    ) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS, 0, (STEPS + 1) * CORES - ROWS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[(STEPS * CORES, WIDE), DTYPE])
        kept = tf.empty(Tensor[(CORES, STREAMS, PART + SKEW), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                sums = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                for stream in range(STREAMS):
                    for c in tf.tile(PART, CHUNK):
                        at = stream * PART + c.start
                        v = tf.reshard(padded[cores.core:cores.core + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                        kept = tf.insert_slice(kept, tf.reshape(v, (1, 1, CHUNK)), (cores.core, stream, c.start))
                        sums = sums + tf.cast(v, "f32")
                for step in range(STEPS):
                    row = step * CORES + cores.core
                    total = tf.reshard(tf.reduce(sums, (1,), True, "sum"), (1, 1))
                    mean = total * (1.0 / COLS)
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for stream in range(STREAMS):
                        for c in tf.tile(PART, CHUNK):
                            v = tf.reshard(kept[cores.core, stream:stream + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                            away = tf.cast(v, "f32") - mean
                            if WIDE != COLS:
                                n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], stream * PART + c.start)
                                away = tf.where(n < COLS, away, 0.0)
                            squares = squares + tf.square(away)
                    spread = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                    sums = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            v = tf.reshard(kept[cores.core, stream:stream + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                            gain = tf.reshard(weights[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            shift = tf.reshard(shifts[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            normed = (tf.cast(v, "f32") - mean) * scale
                            scaled = normed * tf.cast(gain, "f32") + tf.cast(shift, "f32")
                            made = tf.schedule((tf.cast(scaled, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
                            after = padded[row + CORES:row + CORES + 1, at:at + CHUNK]
                            w = tf.reshard(after, (1, VECS, LANES @ t.lane), "rmem")
                            kept = tf.insert_slice(kept, tf.reshape(w, (1, 1, CHUNK)), (cores.core, stream, c.start))
                            sums = sums + tf.cast(w, "f32")
        return out[:ROWS, :COLS]
