from tilefoundry.dsl import *
from tilefoundry.target import CpuTarget

ROWS, COLS = 4096, 2048
CORES, LANES, VECS = 2, 8, 4
CHUNK = LANES * VECS


@module(
    entry="chain",
    target=CpuTarget(),
    topologies=(Topology("core", CORES), Topology("lane", LANES)),
)
class OnCores:
    @func
    def chain(x: Tensor[(1, ROWS, COLS), "f16"]) -> Tensor[(1, ROWS, COLS), "f16"]:
        out = tf.empty(Tensor[(1, ROWS, COLS), "f16"])
        with Mesh(("core",), layout=(CORES,), names=("core",)) as cores:
            with Mesh(("lane",), layout=(LANES,), names=("lane",)) as t:
                for row in range(cores.core, ROWS, CORES):
                    for c in tf.tile(COLS, CHUNK):
                        v = tf.reshard(x[:, row:row + 1, c], (1, 1, VECS, LANES @ t.lane), "rmem")
                        out = tf.insert_slice(out, (v * v + v) * v, (0, row, c.start))
        return out
