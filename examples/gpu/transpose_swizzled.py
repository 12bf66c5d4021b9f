"""Tiled transpose of f32 through a swizzled tile without padding, 16 bytes a thread on entry.
Shows a swizzle chosen by the author: the 16-byte chunk of a row XORed with the row, modulo 8."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 8192, 4096
TILE = 32
GM, GN = ROWS // TILE, COLS // TILE


@module(
    entry="transpose",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", GM * GN), Topology("thread", 256)),
)
class TransposeSwizzled:
    @func
    def transpose(x: Tensor[(ROWS, COLS), "f32"]) -> Tensor[(COLS, ROWS), "f32"]:
        out = tf.empty(Tensor[(COLS, ROWS), "f32"])
        with Mesh(("cta",), layout=(GM, GN), names=("row", "col")) as cta:
            m = cta.row * TILE
            n = cta.col * TILE
            with Mesh(("thread",), layout=(32, 8), names=("row", "chunk")) as t:
                rows = tf.reshard(x[m:m + TILE, n:n + TILE], (32 @ t.row, 8 @ t.chunk, 4), "rmem")
                tile = tf.reshard(rows, Layout((TILE, TILE)) | Swizzle(3, 4, 3), "smem")
                columns = tf.reshard(tf.transpose(tile, (1, 0)), (32 @ t.row, 8 @ t.chunk, 4), "rmem")
                out = tf.insert_slice(out, columns, (n, m))
        return out
