"""Softmax over rows of any length, a row at a time on each core: three passes over chunks of
VECS vectors, for the maximum, the powers and the result. Each core keeps the powers of its row
in memory that no other reads. What is beyond a row is minus infinity."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 37, 300, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
LEAST = float("-inf")


@module(
    entry="softmax",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), DTYPE]) -> Tensor[(ROWS, COLS), DTYPE]:
        padded = tf.pad(x, (0, WIDE - COLS), LEAST)
        out = tf.empty(Tensor[(ROWS, WIDE), DTYPE])
        kept = tf.empty(Tensor[(CORES, WIDE), "f32"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    first = tf.reshard(padded[row:row + 1, :CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                    most = tf.cast(first, "f32")
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        most = tf.maximum(most, tf.cast(v, "f32"))
                    held = tf.reduce(most, (1,), True, "max")
                    top = tf.reshard(held, (1, 1))
                    powers = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        v = tf.reshard(padded[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        power = tf.exp(tf.cast(v, "f32") - top)
                        kept = tf.insert_slice(kept, power, (cores.core, c.start))
                        powers = powers + power
                    scale = 1.0 / tf.reshard(tf.reduce(powers, (1,), True, "sum"), (1, 1))
                    for c in tf.tile(WIDE, CHUNK):
                        mine = kept[cores.core:cores.core + 1, c]
                        power = tf.reshard(mine, (1, VECS, LANES @ t.lane), "rmem")
                        out = tf.insert_slice(out, tf.cast(power * scale, DTYPE), (row, c.start))
        return out[:, :COLS]
