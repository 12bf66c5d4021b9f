from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(entry="chain", target=CudaTarget("nvidia.h200_sxm"), topologies=(Topology("cta", 8),))
class Placed:
    @func
    def chain(x: Tensor[(1, 4096, 2048), "f16"]):
        with Mesh(("cta",), layout=(8,), names=("tile",)) as cta:
            xr = tf.reshard(x, (1, 4096 @ cta.tile, 2048), "rmem")
            a = tf.mul(xr, xr)
            b = tf.add(a, xr)
            return tf.reshard(tf.mul(b, xr), (1, 4096 @ cta.tile, 2048), "gmem")
