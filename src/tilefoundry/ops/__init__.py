"""Operations of the language, one file each, found by name on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from tilefoundry.ops.base import Op

ALIASES = {"min": "minimum", "max": "maximum"}


@cache
def find(name: str) -> Op | None:
    """The operation called ``name``, None if there is none."""
    real = ALIASES.get(name, name)
    if real not in names():
        return None
    return import_module(f"tilefoundry.ops.{real}").OP


@cache
def names() -> frozenset[str]:
    """Names of all operations: the files of this folder, but the shared ones."""
    shared = {"base", "propagate", "signature"}
    here = Path(__file__).parent
    return frozenset(p.stem for p in here.glob("[a-z]*.py") if p.stem not in shared)
