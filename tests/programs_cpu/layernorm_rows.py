"""LayerNorm row by row, for rows of which the first cache holds many: a row is read and its mean and
spread found, then the result is stored past the caches. Processors that read far ahead by
themselves read the next row meanwhile. The spread is taken in one reading: each lane adds the
squares of its distances to a base, the mean of the first vectors. That is the mean of a share p of
what it reads, so those squares are at most 1/p times the ones about its mean: little is lost when
they are moved there. Elements beyond a row do not count. Each core has a part of the rows."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 1
SIZE = 4 if DTYPE == "f32" else 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
EVEN = WIDE == COLS
FIRST = max(1, min(COLS // LANES, 8))  # vectors that no lane lacks
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
PART = ceildiv(ROWS, CORES)
EPS = 1e-5


@module(
    entry="layernorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class LayerNormRows:
    @func
    def layernorm(
        x: Tensor[(ROWS, COLS), DTYPE],
        weight: ConstTensor[(COLS,), DTYPE],
        bias: ConstTensor[(COLS,), DTYPE],
    ) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS, 0, PART * CORES - ROWS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[(PART * CORES, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(PART):
                    row = cores.core * PART + step
                    base = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                    for n in range(FIRST):
                        first = padded[row:row + 1, n * LANES:n * LANES + LANES]
                        base = base + tf.cast(tf.reshard(first, (1, LANES @ t.lane), "rmem"), "f32")
                    base = base * (1.0 / FIRST)
                    sums = tf.zeros(Tensor[(1, LANES), "f32", (1, LANES @ t.lane), "rmem"])
                    squares = sums + 0.0
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        away = tf.reshape(tf.cast(v, "f32"), (1, VECS, LANES)) - base
                        if not EVEN:
                            n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], c.start)
                            away = tf.where(tf.reshape(n, (1, VECS, LANES)) < COLS, away, 0.0)
                        sums = sums + tf.reduce(away, (1,), kind="sum")
                        for k in tuple(range(VECS)):
                            squares = tf.fma(away[:, k], away[:, k], squares)
                    if EVEN:
                        has = COLS / LANES  # elements of a lane
                        drift = sums * (LANES / COLS)
                    else:
                        last = tf.arange(Tensor[(LANES,), "f32", (LANES @ t.lane,), "rmem"], COLS + LANES - 1, -1)
                        has = tf.floor(last * (1.0 / LANES))
                        drift = sums / tf.maximum(has, 1.0)
                    inside = squares - sums * drift
                    centers = base + drift
                    total = tf.reshard(tf.reduce(centers * has, (1,), True, "sum"), (1, 1))
                    mean = total * (1.0 / COLS)
                    between = tf.square(centers - mean) * has
                    spread = tf.reshard(tf.reduce(inside + between, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                    lift = -mean * scale
                    for c in tf.tile(WIDE, CHUNK):
                        gain = tf.cast(tf.reshard(weights[c], (VECS, LANES @ t.lane), "rmem"), "f32")
                        shift = tf.cast(tf.reshard(shifts[c], (VECS, LANES @ t.lane), "rmem"), "f32")
                        u = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        normed = tf.fma(tf.fma(tf.cast(u, "f32"), scale, lift), gain, shift)
                        made = tf.schedule((tf.cast(normed, DTYPE), tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                        out = tf.insert_slice(out, made, (row, c.start))
        return out[:ROWS, :COLS]
