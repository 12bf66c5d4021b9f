"""LayerNorm over rows of any length, each core R of its rows side by side, so that each has a prefetcher
of its own and what is read for all rows is read once for R of them. While the results of some rows
are stored, past the caches, the next are read, so that memory is read and written all the time;
rows that were read are in a cache, their last TURN elements in the first: results begin with those.
What comes a step later is asked for from memory. The spread is taken in one reading: each lane adds
the squares of its distances to a base, the mean of the first vectors. That is the mean of a share p
of what it reads, so those squares are at most 1/p times the ones about its mean: little is lost when
they are moved there. Elements beyond a row do not count. The first step stores what is stored anew
by the second; the last reads what was read."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 1
SIZE = 4 if DTYPE == "f32" else 2
R = 2 if LANES <= 8 else 6 if SIZE == 4 else 4  # as many as registers hold: 32 of 16 lanes, 16 of 8
CHUNK = LANES * VECS
PAIR = 2 if SIZE == 2 and VECS % 2 == 0 else 1  # vectors that fill a line are stored together
PIECE = LANES * PAIR
WIDE = ceildiv(COLS, CHUNK) * CHUNK
EVEN = WIDE == COLS
FIRST = max(1, min(COLS // LANES, 8))  # vectors that no lane lacks
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD, NEAR = R * COLS, 2 * CHUNK
ASKED = (AHEAD, NEAR) if NEAR else AHEAD
CACHED = 43008 if LANES > 8 else 28672  # bytes, 7/8 of a first cache: of rows read and stored and of both weights
TURN = min(CACHED // (2 * SIZE * (R + 1)), WIDE // 2) // CHUNK * CHUNK
SPANS = ((0, TURN, WIDE - TURN), (TURN, WIDE, -TURN)) if TURN else ((0, WIDE, 0),)  # from, to; the results' place from there
STEPS = ceildiv(ROWS, CORES * R)
PART = STEPS * R
SCALES = ceildiv(R * LANES, 1024) * 1024  # pages of a core
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
        padded = tf.pad(x, (0, WIDE - COLS, 0, CORES * PART - ROWS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[(CORES * PART, WIDE), DTYPE])
        scales = tf.empty(Tensor[(CORES, SCALES), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                none = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                for r in range(R):
                    scales = tf.insert_slice(scales, none, (cores.core, r * LANES))
                lift = tf.zeros(Tensor[(R, 1), "f32", "rmem"])
                for step in range(STEPS + 1):
                    row = cores.core * PART + max(step - 1, 0) * R
                    after = cores.core * PART + min(step, STEPS - 1) * R
                    base = tf.zeros(Tensor[(R, LANES), "f32", (R, LANES @ t.lane), "rmem"])
                    for n in range(FIRST):
                        first = padded[after:after + R, n * LANES:n * LANES + LANES]
                        base = base + tf.cast(tf.reshard(first, (R, LANES @ t.lane), "rmem"), "f32")
                    base = base * (1.0 / FIRST)
                    sums = tf.zeros(Tensor[(R, LANES), "f32", (R, LANES @ t.lane), "rmem"])
                    squares = sums + 0.0
                    for start, stop, behind in SPANS:
                        for c in tf.tile(stop - start, CHUNK):
                            that = start + c.start
                            this = that + behind
                            gain = tf.reshape(tf.cast(tf.reshard(weights[this:this + CHUNK], (VECS, LANES @ t.lane), "rmem"), "f32"), (VECS, LANES))
                            shift = tf.reshape(tf.cast(tf.reshard(shifts[this:this + CHUNK], (VECS, LANES @ t.lane), "rmem"), "f32"), (VECS, LANES))
                            for r in tuple(range(R)):
                                scale = tf.reshard(scales[cores.core:cores.core + 1, r * LANES:r * LANES + LANES], (1, LANES @ t.lane), "rmem")
                                for k in tuple(range(0, VECS, PAIR)):
                                    at = this + k * LANES
                                    u = tf.reshard(padded[row + r:row + r + 1, at:at + PIECE], (1, PAIR, LANES @ t.lane), "rmem")
                                    normed = tf.fma(tf.reshape(tf.cast(u, "f32"), (1, PAIR, LANES)), scale, lift[r:r + 1])
                                    scaled = tf.fma(normed, gain[k:k + PAIR], shift[k:k + PAIR])
                                    made = tf.schedule((tf.cast(tf.reshape(scaled, (1, PIECE)), DTYPE), tf.empty(Tensor[(1, PIECE), DTYPE])), op=store)
                                    out = tf.insert_slice(out, made, (row + r, at))
                                for k in tuple(range(0, VECS, PAIR)):
                                    at = that + k * LANES
                                    held = tf.empty(Tensor[(1, PIECE), DTYPE, (1, PAIR, LANES @ t.lane), "rmem"])
                                    w = tf.schedule((padded[after + r:after + r + 1, at:at + PIECE], held), op=T.x86.LoadAhead(), prefetch=ASKED)
                                    away = base[r:r + 1] - tf.reshape(tf.cast(w, "f32"), (1, PAIR, LANES))
                                    if not EVEN:
                                        n = tf.arange(Tensor[(PIECE,), "i32", (PAIR, LANES @ t.lane), "rmem"], at)
                                        away = tf.where(tf.reshape(n, (1, PAIR, LANES)) < COLS, away, 0.0)
                                    sums = tf.insert_slice(sums, sums[r:r + 1] + tf.reduce(away, (1,), kind="sum"), (r, 0))
                                    for j in tuple(range(PAIR)):
                                        squares = tf.insert_slice(squares, tf.fma(away[:, j], away[:, j], squares[r:r + 1]), (r, 0))
                    if EVEN:
                        has = COLS / LANES  # elements of a lane
                        share = LANES / COLS
                    else:
                        last = tf.arange(Tensor[(LANES,), "f32", (LANES @ t.lane,), "rmem"], COLS + LANES - 1, -1)
                        has = tf.floor(last * (1.0 / LANES))
                        share = 1.0 / tf.maximum(has, 1.0)
                    for r in tuple(range(R)):
                        drift = sums[r:r + 1] * share
                        inside = squares[r:r + 1] - sums[r:r + 1] * drift
                        centers = base[r:r + 1] - drift
                        total = tf.reshard(tf.reduce(centers * has, (1,), True, "sum"), (1, 1))
                        mean = total * (1.0 / COLS)
                        between = tf.square(centers - mean) * has
                        spread = tf.reshard(tf.reduce(inside + between, (1,), True, "sum"), (1, 1))
                        scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                        lift = tf.insert_slice(lift, -mean * scale, (r, 0))
                        scales = tf.insert_slice(scales, none + scale, (cores.core, r * LANES))
        return out[:ROWS, :COLS]
