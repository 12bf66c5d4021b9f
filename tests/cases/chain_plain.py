from tilefoundry.dsl import *
from tilefoundry.target import CudaTarget


@module(entry="chain", target=CudaTarget("nvidia.h200_sxm"))
class Plain:
    @func
    def chain(x: Tensor[(1, 4096, 2048), "f16"]):
        a = x * x
        b = a + x
        return b * x
