"""LayerNorm for processors that write to memory fastest in one stream, in order: while the results of a
row are stored, past the caches, the next row is read, STREAMS parts of it side by side, each with a
prefetcher of its own; a row that was read is in a cache. What comes two rows later is asked for
from memory. Each core has a part of the rows. The spread is taken in one reading: each lane adds
the squares of its distances to a base, the mean of the first vectors. That is the mean of a share p
of what it reads, so those squares are at most 1/p times the ones about its mean: little is lost
when they are moved there. Elements beyond a row do not count. The first step stores what is stored
anew by the second; the last reads what was read."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
STREAMS = 2 if COLS * SIZE >= 8192 else 1  # parts of a page or more
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
LONG = WIDE // STREAMS  # of a part
EVEN = WIDE == COLS
FIRST = max(1, min(COLS // LANES, 8))  # vectors that no lane lacks
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD = 2 * COLS
PART = ceildiv(ROWS, CORES)
EPS = 1e-5


@module(
    entry="layernorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class LayerNormFlow:
    @func
    def layernorm(
        x: Tensor[(ROWS, COLS), DTYPE],
        weight: ConstTensor[(COLS,), DTYPE],
        bias: ConstTensor[(COLS,), DTYPE],
    ) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS, 0, CORES * PART - ROWS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[(CORES * PART, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                lift = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                scale = tf.zeros(Tensor[(1, 1), "f32", "rmem"])
                for step in range(PART + 1):
                    row = cores.core * PART + max(step - 1, 0)
                    after = cores.core * PART + min(step, PART - 1)
                    base = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                    for n in range(FIRST):
                        first = padded[after:after + 1, n * LANES:n * LANES + LANES]
                        base = base + tf.cast(tf.reshard(first, (1, LANES @ t.lane), "rmem"), "f32")
                    base = base * (1.0 / FIRST)
                    sums = tf.zeros(Tensor[(1, VECS, LANES), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    squares = sums + 0.0
                    for c in tf.tile(LONG, CHUNK):
                        for stream in tuple(range(STREAMS)):
                            to = stream * LONG + c.start
                            place = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            w = tf.schedule((padded[after:after + 1, to:to + CHUNK], place), op=T.x86.LoadAhead(), prefetch=AHEAD)
                            away = base - tf.reshape(tf.cast(w, "f32"), (1, VECS, LANES))
                            if not EVEN:
                                n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], to)
                                away = tf.where(tf.reshape(n, (1, VECS, LANES)) < COLS, away, 0.0)
                            sums = sums + away
                            squares = tf.fma(away, away, squares)
                        for stream in tuple(range(STREAMS)):
                            at = c.start * STREAMS + stream * CHUNK
                            gain = tf.cast(tf.reshard(weights[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem"), "f32")
                            shift = tf.cast(tf.reshard(shifts[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem"), "f32")
                            u = tf.reshard(padded[row:row + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                            normed = tf.fma(tf.fma(tf.cast(u, "f32"), scale, lift), gain, shift)
                            made = tf.schedule((tf.cast(normed, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
                    added = tf.reduce(sums, (1,), kind="sum")
                    powers = tf.reduce(squares, (1,), kind="sum")
                    if EVEN:
                        has = COLS / LANES  # elements of a lane
                        drift = added * (LANES / COLS)
                    else:
                        last = tf.arange(Tensor[(LANES,), "f32", (LANES @ t.lane,), "rmem"], COLS + LANES - 1, -1)
                        has = tf.floor(last * (1.0 / LANES))
                        drift = added / tf.maximum(has, 1.0)
                    inside = powers - added * drift
                    centers = base - drift
                    total = tf.reshard(tf.reduce(centers * has, (1,), True, "sum"), (1, 1))
                    mean = total * (1.0 / COLS)
                    between = tf.square(centers - mean) * has
                    spread = tf.reshard(tf.reduce(inside + between, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                    lift = -mean * scale
        return out[:ROWS, :COLS]
