"""The parent's side of a child: start, ask, stop for a while, end; and its last words."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import tilefoundry
from tilefoundry.diag import Diag, Refusal, Span, codes, refuse
from tilefoundry.judge.jail import tree
from tilefoundry.judge.jail.settings import settings
from tilefoundry.judge.wire import MOST_DESCRIPTORS, Inbox, Malformed, receive, send

KEPT = frozenset(
    [
        *("PATH", "LANG", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
        *("CC", "CXX", "TORCH_CUDA_ARCH_LIST", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    ]
)
"""Variables that a child inherits, beside those of CUDA and the locale."""
KEPT_LEADS = ("CUDA_", "NVIDIA_", "LC_")
TAIL = 20
"""Lines of a child's last words that are quoted."""
LONGEST_WORDS = 1 << 20
"""Bytes that are kept of what a child prints: the last ones."""
LONGEST_TAIL = 1 << 14
ENDING = 10.0
"""Seconds in which a child that was told to end must be gone."""
BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "import tilefoundry.judge.jail.enter as e; e.main()"
)
Role = Literal["candidate", "reference", "rival"]

DIED: Mapping[Role, str] = {
    "candidate": "check-candidate-died",
    "reference": "check-reference-died",
    "rival": "measure-rival-died",
}
_numbers = itertools.count()


class Child:
    """A process that runs an author's program, in a jail of its own."""

    def __init__(
        self,
        role: Role,
        folder: Path,
        seconds: float,
        device: str,
        variables: Mapping[str, str] | None = None,
        hidden: Sequence[str] = (),
        needed: Sequence[str] = (),
    ) -> None:
        """``folder`` is the judge's own, which no child sees; ``variables`` are set in its
        environment beside those that it inherits; the files ``hidden`` must not be read by it,
        those ``needed`` must.
        """
        self.role: Role = role
        self.seconds = seconds
        self.left = seconds
        self.isolation: dict[str, str] | None = None
        """What protects the command from it, by name, once it has answered."""
        self.said = {"stdout": bytearray(), "stderr": bytearray()}
        self.ended: tuple[int, str] | None = None
        self.inbox, self.answers = Inbox(), Inbox()
        self.number = next(_numbers)
        place = folder / f"{role}.{self.number}"
        own = [place / "tmp", place / "home"]
        jail = settings(folder, own, self.number, seconds, device, hidden, needed)
        self.end, theirs = socket.socketpair()
        self.control, first = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        self.pipes = {out[0]: self.said["stdout"], err[0]: self.said["stderr"]}
        passed = (theirs.fileno(), first.fileno(), out[1], err[1])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", "-c", BEGIN, _home(), *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err[1],
                pass_fds=passed,
                start_new_session=True,
                env={**_environment(own[0], own[1]), **(variables or {})},
            )
        finally:
            theirs.close()
            first.close()
            os.close(out[1])
            os.close(err[1])
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
        self.doing, self.asked = "starting", False
        self.started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            send(self.control, jail)

    def ask(self, what: str, doing: str, **request: Any) -> dict[str, Any]:
        """The answer to one request; refuses what the child refuses, its end, its silence."""
        self.begin(what, doing, **request)
        return self.finish()

    def begin(self, what: str, doing: str, **request: Any) -> None:
        """Send a request whose answer :meth:`finish` takes, or the next request, for nothing.

        Files that it names as ``path`` or ``out`` are opened here and given with it: the child
        may write into all but weights.
        """
        if self.asked:
            self.finish()
        self.doing = doing
        self.asked = True
        self.started = time.monotonic()
        self.end.settimeout(max(self.left, 0.001))
        files: list[str] = []
        opened: list[int] = []
        try:
            for path, write in dict.fromkeys(_files(request, what != "prepare")):
                with contextlib.suppress(FileNotFoundError):  # one that was given before
                    mode = os.O_RDWR if write else os.O_RDONLY
                    opened.append(os.open(path, mode | os.O_CLOEXEC))
                    files.append(path)
            with contextlib.suppress(ConnectionError):  # seen again when the answer is read
                for at in range(0, max(1, len(files)), MOST_DESCRIPTORS):
                    part = slice(at, at + MOST_DESCRIPTORS)
                    last = at + MOST_DESCRIPTORS >= len(files)
                    message = {"do": what, **request} if last else {"do": "take"}
                    send(self.end, {**message, "given": files[part]}, opened[part])
        except TimeoutError:
            self._late()
        finally:
            for number in opened:
                os.close(number)

    def finish(self) -> dict[str, Any]:
        """The answer to the request that was sent last.

        The child's time runs while it is waited for: not where its answer was there before.
        """
        begun = time.monotonic()
        until = begun + self.left
        try:
            while (answer := self._answer()) is None:
                self._wait(until)
        except Malformed as broken:
            self.died(f"it sent {broken}")
        self.asked = False
        self.left -= time.monotonic() - begun
        if "refusal" in answer:
            raise self._refusal(answer["refusal"])
        return answer

    def _answer(self) -> dict[str, Any] | None:
        """The next answer that is here; the first message of all tells how it is jailed."""
        message = self.inbox.take()
        if message is not None and self.isolation is None:
            self.isolation = {str(k): str(v) for k, v in message.get("isolation", {}).items()}
            message = self.inbox.take()
        return message

    def _wait(self, until: float) -> None:
        """Take what comes next: of an answer, of words, of the news of its end."""
        left = until - time.monotonic()
        ready: list[Any] = []
        if left > 0:
            ready, _, _ = select.select([self.end, *self.pipes], [], [], left)
        if not ready:
            self._late()
        self._listen(ready)
        if self.end in ready:
            try:
                data = self.end.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self.died(self._ended())
            self.inbox.data += data

    def _listen(self, ready: Sequence[Any]) -> None:
        """Take what was printed, so that nobody waits to print; the last of it is kept."""
        for pipe, said in list(self.pipes.items()):
            if pipe not in ready:
                continue
            with contextlib.suppress(BlockingIOError):
                data = os.read(pipe, 1 << 16)
                said += data
                del said[:-LONGEST_WORDS]
                if not data:
                    self._mute(pipe)

    def _mute(self, pipe: int) -> None:
        del self.pipes[pipe]
        os.close(pipe)

    def _late(self) -> NoReturn:
        refuse("check-timeout", None, who=f"the {self.role}", seconds=f"{self.seconds:g}",
               doing=f"still {self.doing}")  # fmt: skip

    def died(self, how: str) -> NoReturn:
        """Refuse a child that gave no answer, with its last words."""
        self._last_words()
        raise Refusal(
            Diag(
                DIED[self.role],
                None,
                {"doing": self.doing, "how": how, "function": "the function"},
                (*self._tail("stderr"), *self._tail("stdout")),
            )
        )

    def words(self, name: str) -> str:
        """What the child has printed so far to ``stdout`` or ``stderr``."""
        self._last_words()
        return self.said[name].decode("utf-8", "backslashreplace")

    def _last_words(self) -> None:
        while ready := select.select([*self.pipes], [], [], 0)[0] if self.pipes else []:
            before = sum(map(len, self.said.values()))
            self._listen(ready)
            if before >= LONGEST_WORDS:  # it goes on printing
                return

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process that runs the program, as the parent sees it; 0 where it cannot."""
        first = tree.children(self.process.pid)
        found = tree.children(first[0]) if first else []
        return found[0] if found else 0

    def stop(self) -> None:
        """Stop the child and all that it started until :meth:`go`."""
        self._tell("SIGSTOP")

    def go(self) -> None:
        self._tell("SIGCONT")

    def close(self) -> None:
        """End the child and all that it started."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            send(self.control, {"do": "end"})
        for end in (self.end, self.control):
            end.close()
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in list(self.pipes):
            self._mute(pipe)

    def _tell(self, signal_name: str) -> None:
        """Have a signal sent to all that lives in the jail, and wait until it was."""
        self.control.settimeout(ENDING)
        with contextlib.suppress(OSError):
            send(self.control, {"do": signal_name})
            self._hear("done")

    def _hear(self, wanted: str) -> None:
        """Take messages of the jail's first process up to one that has ``wanted``."""
        while (message := receive(self.control)) is not None:
            if "status" in message:
                self.ended = int(message["status"]), str(message["why"])
            if wanted in message:
                return

    def _ended(self) -> str:
        """How the process ended, in words."""
        self.control.settimeout(5)
        if self.ended is None:
            with contextlib.suppress(OSError):
                self._hear("status")
        if self.ended is None:
            if not self.alive:
                return "gone with its jail"
            return "it closed its channel"
        status, why = self.ended
        code = os.waitstatus_to_exitcode(status)
        if why:
            return f"ended by the command: {why}"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def _tail(self, name: str) -> list[str]:
        text = self.said[name][-LONGEST_TAIL:].decode("utf-8", "backslashreplace")
        return [f"{name}: {line}" for line in text.splitlines()[-TAIL:] if line.strip()]

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


def _files(request: Any, write: bool) -> Iterator[tuple[str, bool]]:
    """The files that a request names, and whether they may be written."""
    if isinstance(request, Mapping):
        for key, value in request.items():
            if key in ("path", "out") and isinstance(value, str):
                yield value, write
            else:
                yield from _files(value, write)
    elif isinstance(request, list | tuple):
        for value in request:
            yield from _files(value, write)


def _home() -> str:
    return str(Path(tilefoundry.__file__).parents[1])


def _environment(temporary: Path, home: Path) -> dict[str, str]:
    """What was compiled is used from the caller's cache, but nothing is added to it."""
    from tilefoundry.build.cache import READ_ONLY, root

    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_LEADS)}
    documents = os.environ.get("TILEFOUNDRY_HOME") or os.path.expanduser("~/.tilefoundry")
    return {**kept, "HOME": str(home), "USER": "candidate", "LOGNAME": "candidate",
            "TMPDIR": str(temporary), "TILEFOUNDRY_HOME": documents,
            "TILEFOUNDRY_CACHE": str(home / "cache"), READ_ONLY: str(root())}  # fmt: skip
