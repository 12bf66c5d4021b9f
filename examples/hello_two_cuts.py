from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(
    entry="chain",
    target=CudaTarget("nvidia.h200_sxm"),
    topologies=(Topology("cta", 256), Topology("thread", 256)),
)
class Placed:
    @func
    def chain(x: Tensor[(1, 4096, 2048), "f16"]):
        with Mesh(("cta",), layout=(8, 32), names=("row", "col")) as cta:
            with Mesh(("thread",), layout=(32, 8), names=("row", "col")) as thread:
                xr = tf.reshard(x, (1, 8 @ cta.row, 16, 32 @ thread.row,
                                    32 @ cta.col, 8 @ thread.col, 8), "rmem")
                a = tf.mul(xr, xr)
                b = tf.add(a, xr)
                return tf.reshard(tf.mul(b, xr),
                                  (1, 8 @ cta.row, 16, 32 @ thread.row,
                                   32 @ cta.col, 8 @ thread.col, 8), "gmem")
