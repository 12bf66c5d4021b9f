"""Residual + RMSNorm over rows of any length, a row at a time on each core: the sum of squares
in one pass over chunks of VECS vectors, the result in another. Two outputs, one weight."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 19, 333, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
EPS = 1e-5


@module(
    entry="rmsnorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class RmsNorm:
    @func
    def rmsnorm(
        h: Tensor[(ROWS, COLS), DTYPE],
        mix: Tensor[(ROWS, COLS), DTYPE],
        gamma: ConstTensor[(COLS,), DTYPE],
    ) -> (Tensor[(ROWS, COLS), DTYPE], Tensor[(ROWS, COLS), DTYPE]):
        h_wide = tf.pad(h, (0, WIDE - COLS), 0.0)
        mix_wide = tf.pad(mix, (0, WIDE - COLS), 0.0)
        gamma_wide = tf.pad(gamma, (0, WIDE - COLS), 0.0)
        residual = tf.empty(Tensor[(ROWS, WIDE), DTYPE])
        out = tf.empty(Tensor[(ROWS, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        a = tf.reshard(h_wide[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        b = tf.reshard(mix_wide[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        added = a + b
                        residual = tf.insert_slice(residual, added, (row, c.start))
                        squares = squares + tf.square(tf.cast(added, "f32"))
                    total = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(total * (1.0 / COLS) + EPS)
                    for c in tf.tile(WIDE, CHUNK):
                        sum_ = tf.reshard(residual[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        gain = tf.reshard(gamma_wide[c], (VECS, LANES @ t.lane), "rmem")
                        normed = tf.cast(tf.cast(sum_, "f32") * scale, DTYPE) * gain
                        out = tf.insert_slice(out, normed, (row, c.start))
        return residual[:, :COLS], out[:, :COLS]
