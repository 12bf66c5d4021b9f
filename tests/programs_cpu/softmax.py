"""Softmax over rows, a row at a time on each core, its columns dealt to the lanes."""

from tilefoundry.dsl import *
from tilefoundry.target import X86Target

ROWS, COLS = 37, 1024
CORES, LANES = 2, 8
PER = COLS // LANES


@module(
    entry="softmax",
    target=X86Target("x86_64.generic"),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class Softmax:
    @func
    def softmax(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(ROWS, COLS), "bf16"]:
        out = tf.empty(Tensor[(ROWS, COLS), "bf16"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    held = tf.reshard(x[row:row + 1, :], (1, PER, LANES @ t.lane), "rmem")
                    wide = tf.cast(held, "f32")
                    most = tf.reshard(tf.reduce(wide, (1,), True, "max"), (1, 1))
                    power = tf.exp(wide - most)
                    total = tf.reshard(tf.reduce(power, (1,), True, "sum"), (1, 1))
                    out = tf.insert_slice(out, tf.cast(power / total, "bf16"), (row, 0))
        return out
