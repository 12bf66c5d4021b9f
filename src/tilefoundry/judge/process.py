"""The parent's side of a child: start, ask, stop for a while, end; and its last words."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

import tilefoundry
from tilefoundry.diag import Diag, Refusal, Span, codes, refuse
from tilefoundry.judge.channel import Malformed, receive, send

KEPT = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "VIRTUAL_ENV", "TILEFOUNDRY_HOME"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CC", "CXX", "XDG_CACHE_HOME"),
        *("TORCH_EXTENSIONS_DIR", "TORCH_CUDA_ARCH_LIST", "TRITON_CACHE_DIR"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    ]
)
"""Variables that a child inherits, beside those of CUDA and the locale."""
KEPT_LEADS = ("CUDA_", "NVIDIA_", "LC_")
TAIL = 20
"""Lines of a child's last words that are quoted."""
LONGEST_TAIL = 1 << 14
SPARE = 9 / 10
"""Part of the machine's memory that a child may fill."""
ENDING = 5.0
"""Seconds in which the processes that a child leaves behind must be gone."""
MARK = "TILEFOUNDRY_CHILD"
"""Variable by which the processes that a child starts are known: its temporary folder."""
Role = Literal["candidate", "reference", "rival"]

DIED: Mapping[Role, str] = {
    "candidate": "check-candidate-died",
    "reference": "check-reference-died",
    "rival": "measure-rival-died",
}


class Child:
    """A process that runs an author's program, in a session and a folder of its own."""

    def __init__(
        self,
        role: Role,
        folder: Path,
        seconds: float,
        device: str,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """``variables`` are set in its environment beside those that it inherits."""
        self.role: Role = role
        self.seconds = seconds
        self.left = seconds
        self.words = (folder / f"{role}.stdout", folder / f"{role}.stderr")
        self.temporary = folder / f"{role}.tmp"
        self.temporary.mkdir(mode=0o700)
        self.end, theirs = socket.socketpair()
        with self.words[0].open("wb") as out, self.words[1].open("wb") as err, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tilefoundry.judge.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**_environment(self.temporary), **(variables or {})},
            )
        self.doing = "starting"
        # Address space that a CUDA driver reserves is no memory used; only CPU runs are bounded.
        self.ask("limit", "starting", memory=_memory() if device == "cpu" else 0)

    def ask(self, what: str, doing: str, **request: Any) -> dict[str, Any]:
        """The answer to one request; refuses what the child refuses, its end, its silence."""
        self.begin(what, doing, **request)
        return self.finish()

    def begin(self, what: str, doing: str, **request: Any) -> None:
        """Send a request whose answer :meth:`finish` takes."""
        self.doing = doing
        self.started = time.monotonic()
        self.end.settimeout(max(self.left, 0.001))
        with contextlib.suppress(ConnectionError):  # seen again when the answer is read
            send(self.end, {"do": what, **request})

    def finish(self) -> dict[str, Any]:
        self.end.settimeout(max(self.left - (time.monotonic() - self.started), 0.001))
        try:
            answer = receive(self.end)
        except TimeoutError:
            refuse("check-timeout", None, who=f"the {self.role}", seconds=f"{self.seconds:g}",
                   doing=f"still {self.doing}")  # fmt: skip
        except Malformed as broken:
            self.died(f"it sent {broken}")
        self.left -= time.monotonic() - self.started
        if answer is None:
            self.died(self._ended())
        if "refusal" in answer:
            raise self._refusal(answer["refusal"])
        return answer

    def died(self, how: str) -> NoReturn:
        """Refuse a child that gave no answer, with its last words."""
        raise Refusal(
            Diag(
                DIED[self.role],
                None,
                {"doing": self.doing, "how": how, "function": "the function"},
                (*self._tail("stderr", self.words[1]), *self._tail("stdout", self.words[0])),
            )
        )

    def stop(self) -> None:
        """Stop the child and all that it started until :meth:`go`."""
        self._signal(signal.SIGSTOP)

    def go(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the child and all that it started."""
        self.end.close()
        self._signal(signal.SIGKILL)
        self.process.wait()
        until = time.monotonic() + ENDING
        quiet = 0  # twice: a process that is becoming another program shows no environment
        while quiet < 2 and time.monotonic() < until:
            quiet = 0 if self._signal_strays(signal.SIGKILL) else quiet + 1
            time.sleep(0.01)

    def _signal(self, what: signal.Signals) -> None:
        """Send a signal to all of the child's session, and to what left it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, what)
        self._signal_strays(what)

    def _signal_strays(self, what: signal.Signals) -> int:
        """Send a signal to what carries the child's environment; how many processes do."""
        pids = _marked(self.temporary)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, what)
        return len(pids)

    def _ended(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "it closed its channel"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _tail(self, name: str, path: Path) -> list[str]:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LONGEST_TAIL))
            lines = file.read().decode("utf-8", "backslashreplace").splitlines()
        return [f"{name}: {line}" for line in lines[-TAIL:] if line.strip()]

    def _refusal(self, records: Any) -> Refusal:
        known = set(codes())
        try:
            diags = [
                Diag(r["code"], _span(r["span"]), dict(r["fields"]), tuple(map(str, r["notes"])))
                for r in records
            ]
            whole = bool(diags) and all(d.code in known and d.text() for d in diags)
        except (KeyError, TypeError, ValueError, IndexError):
            whole, diags = False, []
        if not whole:
            self.died("it sent a refusal of no known form")
        return Refusal(*diags)


def _span(place: Any) -> Span | None:
    return Span(str(place[0]), *(int(n) for n in place[1:5])) if place else None


def _environment(temporary: Path) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_LEADS)}
    home = str(Path(tilefoundry.__file__).parents[1])
    # PYTHONSAFEPATH: nothing is imported from the folder that the command stands in.
    return {**kept, "PYTHONPATH": home, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary), MARK: str(temporary)}  # fmt: skip


def _marked(temporary: Path) -> list[int]:
    """Processes whose environment names a child's folder; none where there is no /proc."""
    marks = {os.fsencode(f"{name}={temporary}") for name in (MARK, "TMPDIR")}
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if not marks.isdisjoint(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found


def _memory() -> int:
    """Bytes of data that a child may hold; 0 where the machine does not say what it has."""
    try:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * SPARE)
    except (ValueError, OSError):
        return 0
