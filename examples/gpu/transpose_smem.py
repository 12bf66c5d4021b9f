"""Tiled transpose: rows are read and columns written in whole runs, through a padded tile.
Shows one role that writes shared memory in one arrangement and reads it in another."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 8192, 4096
TILE, PAD = 64, 2
GM, GN = ROWS // TILE, COLS // TILE


@module(
    entry="transpose",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", GM * GN), Topology("thread", 256)),
)
class Transpose:
    @func
    def transpose(x: Tensor[(ROWS, COLS), "bf16"]) -> Tensor[(COLS, ROWS), "bf16"]:
        out = tf.empty(Tensor[(COLS, ROWS), "bf16"])
        with Mesh(("cta",), layout=(GM, GN), names=("row", "col")) as cta:
            m = cta.row * TILE
            n = cta.col * TILE
            with Mesh(("thread",), layout=(8, 32), names=("warp", "lane")) as t:
                rows = tf.reshard(x[m:m + TILE, n:n + TILE], (TILE // 8, 8 @ t.warp, 32 @ t.lane, TILE // 32), "rmem")
                tile = tf.reshard(rows, ((TILE, TILE), (TILE + PAD, 1)), "smem")
                turned = tf.transpose(tile, (1, 0))
                columns = tf.reshard(turned, (TILE // 8, 8 @ t.warp, 32 @ t.lane, TILE // 32), "rmem")
                out = tf.insert_slice(out, columns, (n, m))
        return out
