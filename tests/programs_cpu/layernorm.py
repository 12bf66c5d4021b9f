"""LayerNorm over rows of any length, each core R of its rows side by side, so that each has a prefetcher
of its own and what is read for all rows is read once for R of them. While the results of some rows
are stored, past the caches, the next are read, so that memory is read and written all the time;
rows that were read are in a cache. What comes a step later is asked for from memory. The spread is
taken in one reading: each lane adds the squares of its distances to a base, the mean of the first
vectors. That is the mean of a share p of what it reads, so those squares are at most 1/p times
the ones about its mean: little is lost when they are moved there. Elements beyond a row do not
count. The first step stores what is stored anew by the second; the last reads what was read."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 1
SIZE = 4 if DTYPE == "f32" else 2
R = 4 if LANES > 8 else 2  # as many as registers hold: 32 of 16 lanes, 16 of 8
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
EVEN = WIDE == COLS
FIRST = max(1, min(COLS // LANES, 8))  # vectors that no lane lacks
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
AHEAD, NEAR = R * COLS, 2 * CHUNK
STEPS = ceildiv(ROWS, CORES * R)
PART = STEPS * R
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
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                lift = tf.zeros(Tensor[(R, 1), "f32", "rmem"])
                scale = tf.zeros(Tensor[(R, 1), "f32", "rmem"])
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
                    for c in tf.tile(WIDE, CHUNK):
                        gain = tf.cast(tf.reshard(weights[c], (VECS, LANES @ t.lane), "rmem"), "f32")
                        shift = tf.cast(tf.reshard(shifts[c], (VECS, LANES @ t.lane), "rmem"), "f32")
                        for r in tuple(range(R)):
                            u = tf.reshard(padded[row + r:row + r + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                            normed = tf.fma(tf.cast(u, "f32"), scale[r:r + 1], lift[r:r + 1])
                            scaled = tf.fma(normed, gain, shift)
                            made = tf.schedule((tf.cast(scaled, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row + r, c.start))
                            later = padded[after + r:after + r + 1, c]
                            held = tf.empty(Tensor[(1, CHUNK), DTYPE, (1, VECS, LANES @ t.lane), "rmem"])
                            w = tf.schedule((later, held), op=T.x86.LoadAhead(), prefetch=(AHEAD, NEAR))
                            away = base[r:r + 1] - tf.reshape(tf.cast(w, "f32"), (1, VECS, LANES))
                            if not EVEN:
                                n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], c.start)
                                away = tf.where(tf.reshape(n, (1, VECS, LANES)) < COLS, away, 0.0)
                            sums = tf.insert_slice(sums, sums[r:r + 1] + tf.reduce(away, (1,), kind="sum"), (r, 0))
                            for k in tuple(range(VECS)):
                                squares = tf.insert_slice(squares, tf.fma(away[:, k], away[:, k], squares[r:r + 1]), (r, 0))
                    if EVEN:
                        has = COLS / LANES  # elements of a lane
                        drift = sums * (LANES / COLS)
                    else:
                        last = tf.arange(Tensor[(LANES,), "f32", (LANES @ t.lane,), "rmem"], COLS + LANES - 1, -1)
                        has = tf.floor(last * (1.0 / LANES))
                        drift = sums / tf.maximum(has, 1.0)
                    inside = squares - sums * drift
                    centers = base - drift
                    total = tf.reshard(tf.reduce(centers * has, (1,), True, "sum"), (R, 1))
                    mean = total * (1.0 / COLS)
                    between = tf.square(centers - mean) * has
                    spread = tf.reshard(tf.reduce(inside + between, (1,), True, "sum"), (R, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                    lift = -mean * scale
        return out[:ROWS, :COLS]
