"""Residual + RMSNorm row by row, for rows of which the first cache holds many: a row is read, added
and stored past the caches, its squares added up; then what was kept of it is scaled and stored past
the caches, too. Processors that read far ahead by themselves read the next row meanwhile. Each core
has a part of the rows. Two outputs, one weight."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 19, 333, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
SIZE = 4 if DTYPE == "f32" else 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, CHUNK) * CHUNK
PART = ceildiv(ROWS, CORES)
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
EPS = 1e-5


@module(
    entry="rmsnorm",
    target=X86Target(TARGET),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class RmsNormRows:
    @func
    def rmsnorm(
        h: Tensor[(ROWS, COLS), DTYPE],
        mix: Tensor[(ROWS, COLS), DTYPE],
        gamma: ConstTensor[(COLS,), DTYPE],
    ) -> (Tensor[(ROWS, COLS), DTYPE], Tensor[(ROWS, COLS), DTYPE]):
        h_wide = tf.pad(h, (0, WIDE - COLS, 0, PART * CORES - ROWS), 0.0)
        mix_wide = tf.pad(mix, (0, WIDE - COLS, 0, PART * CORES - ROWS), 0.0)
        gamma_wide = tf.pad(gamma, (0, WIDE - COLS), 0.0)
        residual = tf.empty(Tensor[(PART * CORES, WIDE), DTYPE])
        out = tf.empty(Tensor[(PART * CORES, WIDE), DTYPE])
        kept = tf.empty(Tensor[(CORES, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for step in range(PART):
                    row = cores.core * PART + step
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(WIDE, CHUNK):
                        a = tf.reshard(h_wide[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        b = tf.reshard(mix_wide[row:row + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        added = a + b
                        sums = tf.schedule((added, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                        residual = tf.insert_slice(residual, sums, (row, c.start))
                        kept = tf.insert_slice(kept, added, (cores.core, c.start))
                        wide = tf.cast(added, "f32")
                        squares = tf.fma(wide, wide, squares)
                    total = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(total * (1.0 / COLS) + EPS)
                    for c in tf.tile(WIDE, CHUNK):
                        gain = tf.reshard(gamma_wide[c], (VECS, LANES @ t.lane), "rmem")
                        sum_ = tf.reshard(kept[cores.core:cores.core + 1, c], (1, VECS, LANES @ t.lane), "rmem")
                        normed = tf.cast(tf.cast(sum_, "f32") * scale, DTYPE) * gain
                        made = tf.schedule((normed, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                        out = tf.insert_slice(out, made, (row, c.start))
        return residual[:ROWS, :COLS], out[:ROWS, :COLS]
