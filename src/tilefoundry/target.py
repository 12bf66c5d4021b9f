"""What an author names as a module's hardware; light, read only when loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tilefoundry.diag import Span, refuse

if TYPE_CHECKING:
    from tilefoundry.targets import Target


@dataclass(frozen=True)
class TargetRef:
    """The name of a Device document, and what a program expects of it.

    ``family`` is the family that the document must be of, ``capability`` one that its
    architecture must have; None expects nothing.
    """

    id: str
    family: ClassVar[str | None] = None
    capability: ClassVar[str | None] = None

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self.id}")'

    def load(self, span: Span | None = None) -> Target:
        """The target; refuses an unknown id (``target-unknown``) or other hardware than
        this record is for (``target-family``), at ``span``."""
        from tilefoundry.targets import load_target

        target = load_target(self.id, span)
        written = type(self).__name__
        if self.family is not None and target.family != self.family:
            found = f"family {target.family}"
            wanted = f"a device of family {self.family}"
            refuse("target-family", span, id=self.id, record=written, wanted=wanted, found=found)
        if self.capability is not None and self.capability not in target.capabilities:
            found = " ".join(target.capabilities)
            wanted = f"a device with the capability {self.capability}"
            refuse("target-family", span, id=self.id, record=written, wanted=wanted, found=found)
        return target


@dataclass(frozen=True, repr=False)
class AnyTarget(TargetRef):
    """A device of any family, as from an installed package: ``AnyTarget("acme.npu")``."""


@dataclass(frozen=True, repr=False)
class CudaTarget(TargetRef):
    """An NVIDIA GPU: ``CudaTarget("nvidia.h200_sxm")``."""

    family = "cuda"


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


@dataclass(frozen=True, repr=False)
class AmxTarget(TargetRef):
    """Apple silicon seen for its matrix coprocessor: ``AmxTarget("apple.m2_pro")``."""

    id: str = "apple.m2_pro"
    family = "apple_amx"


RECORDS: tuple[type[TargetRef], ...] = (CudaTarget, X86Target, CpuTarget, AmxTarget)
"""The records for hardware of one kind; a narrower one before a wider one."""


def record_of(target: Target) -> TargetRef:
    """How an author names the target: by the narrowest record that is for it."""
    fits = (
        r for r in RECORDS
        if r.family == target.family and r.capability in (None, *target.capabilities)
    )  # fmt: skip
    return next(fits, AnyTarget)(target.id)
