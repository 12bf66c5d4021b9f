"""LayerNorm over rows of any length, a row at a time on each core, in three passes over chunks
of VECS vectors: the mean, the spread, the result. Elements beyond a row do not count."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
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
        padded = tf.pad(x, (0, WIDE - COLS), 0.0)
        weights = tf.pad(weight, (0, WIDE - COLS), 0.0)
        shifts = tf.pad(bias, (0, WIDE - COLS), 0.0)
        out = tf.empty(Tensor[(ROWS, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    sums = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        sums = sums + tf.cast(v, "f32")
                    total = tf.reshard(tf.reduce(sums, (1,), True, "sum"), (1, 1))
                    mean = total * (1.0 / COLS)
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        away = tf.cast(v, "f32") - mean
                        if WIDE != COLS:
                            n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"], c.start)
                            away = tf.where(n < COLS, away, 0.0)
                        squares = squares + tf.square(away)
                    spread = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(spread * (1.0 / COLS) + EPS)
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        gain = tf.reshard(weights[c], (VECS, LANES @ t.lane), "rmem")
                        shift = tf.reshard(shifts[c], (VECS, LANES @ t.lane), "rmem")
                        normed = (tf.cast(v, "f32") - mean) * scale
                        scaled = normed * tf.cast(gain, "f32") + tf.cast(shift, "f32")
                        out = tf.insert_slice(out, tf.cast(scaled, DTYPE), (row, c.start))
        return out[:, :COLS]
