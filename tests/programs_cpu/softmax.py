"""Softmax over rows of any length, a row at a time on each core: three passes over chunks of
VECS vectors, for the maximum, the sum and the result. What is beyond a row is minus infinity."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 37, 300, "bf16"
CORES, LANES, VECS = 2, 8, 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
LEAST = float("-inf")


@module(
    entry="softmax",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), DTYPE]) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS), LEAST)
        out = tf.empty(Tensor[(ROWS, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    most = tf.reshard(padded[row:row + 1, :CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        most = tf.maximum(most, v)
                    held = tf.reduce(tf.cast(most, "f32"), (1,), True, "max")
                    top = tf.reshard(held, (1, 1))
                    total = tf.zeros(Tensor[(1, 1), "f32", (1, 1) @ {t.lane @ P("sum")}, "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        power = tf.exp(tf.cast(v, "f32") - top)
                        total = total + tf.reduce(power, (1,), True, "sum")
                    scale = 1.0 / tf.reshard(total, (1, 1))
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        share = tf.exp(tf.cast(v, "f32") - top) * scale
                        out = tf.insert_slice(out, tf.cast(share, DTYPE), (row, c.start))
        return out[:, :COLS]
