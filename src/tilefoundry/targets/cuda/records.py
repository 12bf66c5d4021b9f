"""How authors write an NVIDIA GPU."""

from dataclasses import dataclass

from tilefoundry.target import TargetRef


@dataclass(frozen=True, repr=False)
class CudaTarget(TargetRef):
    """An NVIDIA GPU: ``CudaTarget("nvidia.h200_sxm")``."""

    family = "cuda"
    example = "nvidia.h200_sxm"


RECORDS = (CudaTarget,)
