"""A program's source, and what a caller must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilefoundry.ir.dtype import DType


@dataclass(frozen=True)
class Argument:
    """One tensor of the program's entry, contiguous, row-major."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str
    """``in``, ``weight`` or ``out``."""
    align: int = 1
    """Bytes that its address must be a multiple of, beyond what its elements ask for."""

    @cached_property
    def bytes(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return -(-count * self.dtype.bits // 8)


WORK_ALIGN = 4096
"""Bytes: a page. Processors compare loads and stores by their places in a page: elsewhere than at
its beginning, a workspace is no less correct but may be slower."""


@dataclass(frozen=True)
class Source:
    """``files``: by name, as compiled; ``readable``: the same for a reader. The first file is
    what is compiled; ``entry`` is its C function: it takes the arguments in order, a
    workspace of ``workspace`` bytes aligned to 64, best to WORK_ALIGN, and a count of threads
    (0: as many as there are). ``facts`` are words for the report, such as registers of each
    kernel."""

    name: str
    family: str
    files: dict[str, str]
    readable: dict[str, str]
    entry: str
    arguments: tuple[Argument, ...]
    workspace: int
    flags: tuple[str, ...]
    kernels: tuple[dict[str, object], ...] = ()
    launches: tuple[dict[str, Any], ...] = ()
    """For families whose kernels the loader launches: each launch, in the family's words, as
    numbers, strings, lists and dicts."""
