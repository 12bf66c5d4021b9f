"""The first post's chain (x * x + x) * x on f16, in registers on a grid of 8 x 32 CTAs.
Shows a two-level split of both axes and nothing else: no loop, no shared memory."""

from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget

ROWS, COLS = 4096, 2048
CTA_ROWS, CTA_COLS = 8, 32
PER_ROW, PER_COL = ROWS // (CTA_ROWS * 32), COLS // (CTA_COLS * 8)


@module(
    entry="chain",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", CTA_ROWS * CTA_COLS), Topology("thread", 256)),
)
class Chain:
    @func
    def chain(x: Tensor[(1, ROWS, COLS), "f16"]):
        with Mesh(("cta",), layout=(CTA_ROWS, CTA_COLS), names=("row", "col")) as cta:
            with Mesh(("thread",), layout=(32, 8), names=("row", "col")) as thread:
                xr = tf.reshard(
                    x,
                    (1, CTA_ROWS @ cta.row, PER_ROW, 32 @ thread.row,
                     CTA_COLS @ cta.col, 8 @ thread.col, PER_COL),
                    "rmem",
                )
                a = tf.mul(xr, xr)
                b = tf.add(a, xr)
                return tf.reshard(
                    tf.mul(b, xr),
                    (1, CTA_ROWS @ cta.row, PER_ROW, 32 @ thread.row,
                     CTA_COLS @ cta.col, 8 @ thread.col, PER_COL),
                    "gmem",
                )
