"""How authors write a CPU."""

from dataclasses import dataclass

from tilefoundry.target import TargetRef


@dataclass(frozen=True, repr=False)
class CpuTarget(TargetRef):
    """A CPU of any make: ``CpuTarget()`` states no figures, ``CpuTarget(id)`` those of a
    document."""

    id: str = "cpu.generic"
    family = "cpu"


@dataclass(frozen=True, repr=False)
class X86Target(TargetRef):
    """An x86-64 CPU: ``X86Target("intel.xeon_amx")``."""

    id: str = "x86_64.generic"
    family = "cpu"
    capability = "x86_64"


RECORDS = (X86Target, CpuTarget)
