"""The beginning of a check or a measurement: what takes longest, importing torch, begins before
all else."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tilefoundry.judge.server import Imported, Server

KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""Memory that was freed is used again: fresh pages take longer to come than most operations do."""
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Threads of libraries wait asleep, OpenBLAS's after 2^4 cycles: those that spin, on a busy
machine, hold up others."""
VARIABLES = {**ASLEEP, **KEEPING}
"""What children of a check find in their environment."""


def measured(threads: int) -> dict[str, str]:
    """What measured processes find in their environment, beside what each inherits."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), **KEEPING}


FIRST: Sequence[Imported] = ("", "torch")
"""What a measurement begins with: most that cannot be measured is refused without torch."""


class Begun:
    """A folder of the judge's own, and fork servers in it, by what each imports, begun in that
    order: torch, which takes longest, or nothing of others, which answers soonest."""

    def __init__(
        self,
        variables: Mapping[str, str] = VARIABLES,
        imported: Sequence[Imported] = ("torch",),
    ) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="tilefoundry-judge-")
        self.folder = Path(self._made.name)
        self.servers: dict[Imported, Server] = {
            what: Server(self.folder, variables, what) for what in imported
        }

    def __enter__(self) -> Begun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for server in self.servers.values():
            server.abandon()
        for server in self.servers.values():
            server.close()
        self._made.cleanup()
