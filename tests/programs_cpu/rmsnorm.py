"""Residual + RMSNorm over rows of any length, a row at a time on each core: the sum of squares
in one pass over chunks of VECS vectors, the result in another. Both go through STREAMS parts of
the row side by side, so that each has a prefetcher of its own. A core keeps the sums of its row
and stores both outputs past the caches. Two outputs, one weight."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS, DTYPE = 19, 333, "bf16"
TARGET, CORES, LANES, VECS = "x86_64.generic", 2, 8, 2
STREAMS, SIZE = 4, 4 if DTYPE == "f32" else 2
CHUNK = LANES * VECS
WIDE = ceildiv(COLS, STREAMS * CHUNK) * STREAMS * CHUNK
PART = WIDE // STREAMS
VECTOR = LANES * SIZE
WHOLE = COLS >= CHUNK and VECTOR >= 16 and COLS * SIZE % min(64, VECTOR) == 0
store = T.x86.StreamStore() if WHOLE else T.copy()
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
        kept = tf.empty(Tensor[(CORES, WIDE), DTYPE])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    squares = tf.zeros(Tensor[(1, CHUNK), "f32", (1, VECS, LANES @ t.lane), "rmem"])
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            a = tf.reshard(h_wide[row:row + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                            b = tf.reshard(mix_wide[row:row + 1, at:at + CHUNK], (1, VECS, LANES @ t.lane), "rmem")
                            added = a + b
                            kept = tf.insert_slice(kept, added, (cores.core, at))
                            sums = tf.schedule((added, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            residual = tf.insert_slice(residual, sums, (row, at))
                            squares = squares + tf.square(tf.cast(added, "f32"))
                    total = tf.reshard(tf.reduce(squares, (1,), True, "sum"), (1, 1))
                    scale = tf.rsqrt(total * (1.0 / COLS) + EPS)
                    for c in tf.tile(PART, CHUNK):
                        for stream in range(STREAMS):
                            at = stream * PART + c.start
                            mine = kept[cores.core:cores.core + 1, at:at + CHUNK]
                            sum_ = tf.reshard(mine, (1, VECS, LANES @ t.lane), "rmem")
                            gain = tf.reshard(gamma_wide[at:at + CHUNK], (VECS, LANES @ t.lane), "rmem")
                            normed = tf.cast(tf.cast(sum_, "f32") * scale, DTYPE) * gain
                            made = tf.schedule((normed, tf.empty(Tensor[(1, CHUNK), DTYPE])), op=store)
                            out = tf.insert_slice(out, made, (row, at))
        return residual[:, :COLS], out[:, :COLS]
