"""The beginning of a check: what takes longest, importing torch, begins before all else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType

from tilefoundry.judge.server import Server

VARIABLES = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}
"""Threads of children wait asleep: on a busy machine those that spin hold up each other. Memory
that was freed is used again: fresh pages take longer to come than most operations do."""


class Begun:
    """A folder of the judge's own, and the fork server in it."""

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="tilefoundry-check-")
        self.folder = Path(self._made.name)
        self.server = Server(self.folder, VARIABLES)

    def __enter__(self) -> Begun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.server.close()
        self._made.cleanup()
