"""LayerNorm over rows of any length, each core a row at a time, two rows at once: while the
result of one is stored, past the caches, the next is read, so that memory is read and written
all the time; a row that was read is in a cache. What comes a step later is asked for from memory.
Chunks of VECS vectors go through STREAMS parts of the row side by side, so that each has a
prefetcher of its own. The spread is taken in one reading: each lane adds the squares of its
distances to a base, the mean of the first chunks. That is the mean of a share p of what it reads,
so those squares are at most 1/p times the ones about its mean: little is lost when they are
moved there. Elements beyond a row do not count."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
STREAMS = max(1, min(4, COLS * SIZE // 4096))  # parts of a page or more: two in one page disturb each other
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
PART = WIDE // STREAMS
EVEN = WIDE == COLS
FIRST = VECS if EVEN else 1  # vectors of a chunk that no lane lacks
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD = CORES * COLS
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
        padded = tf.pad(x, (0, WIDE - COLS, CORES, (STEPS + 1) * CORES - ROWS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[((STEPS + 1) * CORES, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                mean = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                scale = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                for step in range(STEPS + 1):
                    row = step * CORES + cores.core
                    base = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                    for stream in range(STREAMS if EVEN else 1):
                        for n in range(FIRST):
                            begin = stream * PART + n * LANES
                            first = padded[row + CORES:row + CORES + 1, begin:begin + LANES]
                            base = base + tf.cast(tf.reshard(first, (1, LANES @ t.lane), "rmem"), "f32")
                    base = base * (1.0 / (FIRST * (STREAMS if EVEN else 1)))
                    sums = tf.zeros(Tensor[(1, VECS, LANES), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    squares = sums + 0.0
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            u = tf.reshard(padded[row:row + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                            gain = tf.reshard(weights[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            shift = tf.reshard(shifts[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            normed = (tf.cast(u, "f32") - mean) * scale
                            scaled = normed * tf.cast(gain, "f32") + tf.cast(shift, "f32")
                            made = tf.schedule((tf.cast(scaled, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
                            later = padded[row + CORES:row + CORES + 1, at:at + CHUNK]
                            held = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            w = tf.schedule((later, held), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            away = tf.reshape(tf.cast(w, "f32"), (1, VECS, LANES)) - base
                            if not EVEN:
                                n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], at)
                                away = tf.where(tf.reshape(n, (1, VECS, LANES)) < COLS, away, 0.0)
                            sums = sums + away
                            squares = squares + tf.square(away)
                    moved = tf.reduce(sums, (1,), kind="sum")
                    if EVEN:
                        has = COLS / LANES  # elements of a lane
                        drift = moved * (LANES / COLS)
                    else:
                        last = tf.arange(Tensor[(LANES,), "f32", (LANES @ t.lane,), "rmem"], COLS + LANES - 1, -1)
                        has = tf.floor(last * (1.0 / LANES))
                        drift = moved / tf.maximum(has, 1.0)
                    inside = tf.reduce(squares, (1,), kind="sum") - moved * drift
                    centers = base + drift
                    total = tf.reshard(tf.reduce(centers * has, (1,), True, "sum"), (1, 1))
                    mean = total * (1.0 / COLS)
                    between = tf.square(centers - mean) * has
                    spread = tf.reshard(tf.reduce(inside + between, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
        return out[CORES:CORES + ROWS, :COLS]
