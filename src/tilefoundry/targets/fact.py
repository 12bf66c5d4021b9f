"""A fact, and the schema entry that says what a fact at its path may be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

ORIGINS = ("vendor", "measured", "reference", "derived", "estimated")
EXPLAINED = ("derived", "estimated")
"""Origins whose facts must say how they were arrived at."""

FIRST = ("path", "value")


@dataclass(frozen=True, slots=True)
class Fact:
    """One hardware number and where it comes from.

    Either ``value`` is known, in ``unit``, or it is None and ``unavailable`` says why.
    ``low`` and ``high`` are the spread of a measurement, in the same unit.
    """

    path: str
    unit: str
    value: int | float | None = None
    origin: str = ""
    source: str = ""
    conditions: str = ""
    explanation: str = ""
    low: int | float | None = None
    high: int | float | None = None
    unavailable: str = ""
    document: str = ""
    """Id of the document that states it."""

    @property
    def known(self) -> bool:
        return self.value is not None

    def record(self) -> dict[str, object]:
        """What is stated, without the empty fields: value and unit first."""
        names = ("path", "value", *(n for n in self.__dataclass_fields__ if n not in FIRST))
        fields = {name: getattr(self, name) for name in names}
        return {name: value for name, value in fields.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class Entry:
    """What a document may state at ``path``.

    A last segment ``*`` stands for any name. ``whole`` values are integers of at least
    one; ``real`` values are positive and finite. ``kinds`` are the kinds of document
    that may state it; ``required`` ones must (if only as unavailable), and a fact that
    both kinds may state is required of the pair.
    """

    path: str
    unit: str
    number: Literal["whole", "real"] = "whole"
    kinds: tuple[str, ...] = ("architecture",)
    required: bool = False

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is a number of this entry."""
        if isinstance(value, bool):
            return False
        if self.number == "whole":
            return isinstance(value, int) and value >= 1
        return isinstance(value, int | float) and math.isfinite(value) and value > 0

    @property
    def form(self) -> str:
        """The number in words."""
        return "a whole number >= 1" if self.number == "whole" else "a finite number > 0"


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's folder adds to the common schema.

    ``memories`` are the names that storages and caches may be bound to; ``entries`` the
    facts that only this family has.
    """

    name: str
    memories: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
