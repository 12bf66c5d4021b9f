"""The beginning of a check or a measurement: what takes longest, importing torch, begins before
all else."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tilefoundry.judge.server import Server

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""Memory that was freed is used again: fresh pages take longer to come than most operations do."""
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Threads of libraries wait asleep, OpenBLAS's after 2^4 cycles: those that spin, on a busy
machine, hold up others."""
VARIABLES = {**ASLEEP, **KEEPING}
"""What children of a check find in their environment."""


class Begun:
    """A folder of the judge's own, and the fork server in it."""

    def __init__(self, variables: Mapping[str, str] = VARIABLES) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="tilefoundry-judge-")
        self.folder = Path(self._made.name)
        self.server = Server(self.folder, variables, "torch")

    def __enter__(self) -> Begun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.server.close()
        self._made.cleanup()
