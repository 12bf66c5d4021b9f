"""LayerNorm over rows of any length, a row at a time on each core, in three passes over chunks
of VECS vectors: the mean, the spread, the result. Elements beyond a row do not count."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 11, 301, "f32"
CORES, LANES, VECS = 2, 8, 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
EPS = 1e-5


@module(
    entry="layernorm",
    target=X86Target("x86_64.generic"),
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
                    total = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        total = total + tf.reduce(tf.cast(v, "f32"), (1,), True, "sum")
                    mean = tf.reshard(total, (1, 1)) * (1.0 / COLS)
                    spread = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        n = tf.arange(Tensor[(CHUNK,), "i32", (VECS, LANES @ t.lane), "rmem"],
                                      c.start)
                        away = tf.where(n < COLS, tf.cast(v, "f32") - mean, 0.0)
                        spread = spread + tf.reduce(tf.square(away), (1,), True, "sum")
                    scale = tf.rsqrt(tf.reshard(spread, (1, 1)) * (1.0 / COLS) + EPS)
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        gain = tf.reshard(weights[c], (VECS, LANES @ t.lane), "rmem")
                        shift = tf.reshard(shifts[c], (VECS, LANES @ t.lane), "rmem")
                        normed = (tf.cast(v, "f32") - mean) * scale
                        scaled = normed * tf.cast(gain, "f32") + tf.cast(shift, "f32")
                        out = tf.insert_slice(out, tf.cast(scaled, DTYPE), (row, c.start))
        return out[:, :COLS]
