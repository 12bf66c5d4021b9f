"""What an author names as a module's hardware; light, read only when loaded.

Each family declares its own records, such as ``CudaTarget``, in its folder; they are found here
by their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from tilefoundry.diag import Span, refuse

if TYPE_CHECKING:
    from tilefoundry.targets import Target


@dataclass(frozen=True)
class TargetRef:
    """The name of a Device document, and what a program expects of it.

    ``family`` is the family that the document must be of, ``capability`` one that its
    architecture must have; None expects nothing. ``example`` is a device that messages name.
    """

    id: str
    family: ClassVar[str | None] = None
    capability: ClassVar[str | None] = None
    example: ClassVar[str] = ""

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


@cache
def records() -> tuple[type[TargetRef], ...]:
    """The records for hardware of one kind, each from its family's folder (``records.py``); of
    one family a narrower one before a wider one."""
    from tilefoundry.targets.folder import shipped

    return tuple(record for module in shipped("records") for record in module.RECORDS)


def example() -> str:
    """A target as an author writes it."""
    found = next((r for r in records() if r.example), None)
    return repr(found(found.example)) if found else "AnyTarget(ID)"


def record_of(target: Target) -> TargetRef:
    """How an author names the target: by the narrowest record that is for it."""
    fits = (
        r for r in records()
        if r.family == target.family and r.capability in (None, *target.capabilities)
    )  # fmt: skip
    return next(fits, AnyTarget)(target.id)


def __getattr__(name: str) -> Any:
    """The record ``name``, from the folder of its family."""
    found = {} if name.startswith("_") else {r.__name__: r for r in records()}
    if name not in found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found[name]


def __dir__() -> list[str]:
    return [*globals(), *(r.__name__ for r in records())]
