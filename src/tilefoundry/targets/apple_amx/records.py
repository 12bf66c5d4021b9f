"""How authors write Apple silicon."""

from dataclasses import dataclass

from tilefoundry.target import TargetRef


@dataclass(frozen=True, repr=False)
class AmxTarget(TargetRef):
    """Apple silicon seen for its matrix coprocessor: ``AmxTarget("apple.m2_pro")``."""

    id: str = "apple.m2_pro"
    family = "apple_amx"


RECORDS = (AmxTarget,)
