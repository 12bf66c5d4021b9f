"""The command's side of the fork server (``jail/server.py``)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tilefoundry
from tilefoundry.judge.wire import receive, send

KEPT = frozenset(
    [
        *("PATH", "LANG", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("CXX", "TORCH_CUDA_ARCH_LIST", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    ]
)
"""Variables that a child inherits, beside those of CUDA, the locale and our compilers."""
KEPT_LEADS = ("CUDA_", "NVIDIA_", "LC_")
Imported = Literal["", "torch", "torch without numpy"]
"""What children share beside our own code."""
ENDING = 10.0
"""Seconds in which a process that was told to end must be gone."""
STARTING = 120.0
"""Seconds in which the server must have imported what it is to."""
BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "import tilefoundry.judge.jail.server as e; e.main()"
)


class Server:
    """A process from which children are forked, in the order in which they are asked for.

    ``folder`` is the judge's own; it is removed should the command be killed. ``variables`` are
    set in the children's environment beside those that they inherit. It imports ``imported``
    before the first child is forked; numpy is withheld where children may not compute with it.
    """

    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        imported: Imported = "",
    ) -> None:
        self.folder = folder
        self.control, theirs = socket.socketpair()
        self._pids: list[int] = []
        self._asked = 0
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-u", *_bytecode(), "-c", BEGIN, _home(),
                 str(theirs.fileno()), str(os.getpid()), str(folder), imported],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**_environment(), **own(folder / "none", folder / "none"),
                     **(variables or {})},
            )  # fmt: skip

    def start(
        self, jail: Mapping[str, Any], descriptors: Sequence[int], early: bool = False
    ) -> int:
        """Ask for a child; the number by which :meth:`pid` knows it. One that no author's code
        is ever in may be forked ``early``, before all of torch is there."""
        asked = {"do": "start", "early": early, **jail, "server": self.process.pid}
        self._send(asked, descriptors)
        self._asked += 1
        return self._asked - 1

    def pid(self, number: int) -> int:
        """The supervisor of a child, once it is there; 0 where it never will be."""
        self.control.settimeout(STARTING)
        with contextlib.suppress(OSError):
            while len(self._pids) <= number and (message := receive(self.control)) is not None:
                self._pids.append(int(message["pid"]))
        return self._pids[number] if number < len(self._pids) else 0

    def kill(self, number: int) -> None:
        """End a supervisor that does not end by itself."""
        self._send({"do": "kill", "pid": self.pid(number)})

    def abandon(self) -> None:
        """End it at once where it is not done with importing: nobody waits for what would be
        forked after that."""
        if self.process.returncode is not None:
            return
        self.control.settimeout(0)
        with contextlib.suppress(OSError):
            while (message := receive(self.control)) is not None:
                self._pids.append(int(message["pid"]))
        if not self._pids:
            self.process.kill()

    def close(self) -> None:
        """End it; its children must have been told to end before."""
        if self.process.returncode is not None:
            return
        self.control.close()
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        self.control.settimeout(STARTING)
        with contextlib.suppress(OSError):  # it has ended: seen where a child is asked
            send(self.control, message, descriptors)


def own(temporary: Path, home: Path) -> dict[str, str]:
    """The variables that name a child's own folders."""
    return {"HOME": str(home), "TMPDIR": str(temporary), "TILEFOUNDRY_CACHE": str(home / "cache")}


def documents() -> str:
    """The user's folder of hardware that was added."""
    return os.environ.get("TILEFOUNDRY_HOME") or os.path.expanduser("~/.tilefoundry")


def _bytecode() -> list[str]:
    """The options that keep compiled modules where this process keeps them."""
    prefix = [] if sys.pycache_prefix is None else ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [*(["-B"] if sys.dont_write_bytecode else []), *prefix]


def _home() -> str:
    return str(Path(tilefoundry.__file__).parents[1])


def _environment() -> dict[str, str]:
    """What was compiled is used from the caller's cache, but nothing is added to it."""
    from tilefoundry.build import compiler
    from tilefoundry.build.cache import READ_ONLY, root
    from tilefoundry.targets.folder import shipped

    names = KEPT.union(*(m.ENVIRONMENT for m in (compiler, *shipped("host.compiler"))))
    kept = {k: v for k, v in os.environ.items() if k in names or k.startswith(KEPT_LEADS)}
    return {**kept, "USER": "candidate", "LOGNAME": "candidate", "TILEFOUNDRY_HOME": documents(),
            READ_ONLY: str(root())}  # fmt: skip
