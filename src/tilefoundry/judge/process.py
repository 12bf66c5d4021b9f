"""The parent's side of a child: start, ask, stop for a while, end; and its last words."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from tilefoundry.diag import Diag, Refusal, Span, codes, refuse
from tilefoundry.judge.jail import tree
from tilefoundry.judge.jail.enter import DEGRADED
from tilefoundry.judge.jail.settings import settings
from tilefoundry.judge.server import ENDING, Server
from tilefoundry.judge.server import own as own_variables
from tilefoundry.judge.wire import MOST_DESCRIPTORS, Inbox, Malformed, receive, send

TAIL = 20
"""Lines of a child's last words that are quoted."""
LONGEST_WORDS = 1 << 20
"""Bytes that are kept of what a child prints: the last ones."""
LONGEST_TAIL = 1 << 14
Role = Literal["candidate", "reference", "rival"]

DIED: Mapping[Role, str] = {
    "candidate": "check-candidate-died",
    "reference": "check-reference-died",
    "rival": "measure-rival-died",
}
KEEP_APART = ("processes", "files")
"""Protections that keep a child from all other processes."""
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
        server: Server | None = None,
        early: bool = False,
    ) -> None:
        """``folder`` is the judge's own, which no child sees; the files ``hidden`` must not be
        read by it, those ``needed`` must. It is forked from ``server``, else from one of its
        own, in whose environment ``variables`` are set; ``early`` if no author's code comes
        into it.
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
        self.channel, theirs = socket.socketpair()
        self.control, first = socket.socketpair()
        out, err = os.pipe(), os.pipe()
        self.pipes = {out[0]: self.said["stdout"], err[0]: self.said["stderr"]}
        self.server = server or Server(folder, variables)
        self.owns_server = server is None
        jail["environment"] = own_variables(*own)
        passed = (theirs.fileno(), first.fileno(), out[1], err[1])
        try:
            self.place = self.server.start(jail, passed, early)
        finally:
            theirs.close()
            first.close()
            os.close(out[1])
            os.close(err[1])
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
        self.doing, self.asked = "starting", False
        self.started = time.monotonic()
        self.gone = self.closed = False
        """Whether all of it has ended; whether that was seen to."""

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
        self.channel.settimeout(max(self.left, 0.001))
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
                    send(self.channel, {**message, "given": files[part]}, opened[part])
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

    @property
    def apart(self) -> bool:
        """Whether no process outside of its jail is within its reach; waits until it has told
        what protections hold."""
        until = time.monotonic() + self.left
        try:
            while not self._told():
                self._wait(until)
        except Malformed as broken:
            self.died(f"it sent {broken}")
        held = self.isolation or {}
        return not any(held.get(part, DEGRADED).startswith(DEGRADED) for part in KEEP_APART)

    def _answer(self) -> dict[str, Any] | None:
        """The next answer that is here."""
        return self.inbox.take() if self._told() else None

    def _told(self) -> bool:
        """Whether the child has told how it is jailed: by the first message of all."""
        if self.isolation is None and (message := self.inbox.take()) is not None:
            self.isolation = {str(k): str(v) for k, v in message.get("isolation", {}).items()}
        return self.isolation is not None

    def _wait(self, until: float) -> None:
        """Take what comes next: of an answer, of words, of the news of its end."""
        left = until - time.monotonic()
        ready: list[Any] = []
        if left > 0:
            ready, _, _ = select.select([self.channel, *self.pipes], [], [], left)
        if not ready:
            self._late()
        self._listen(ready)
        if self.channel in ready:
            try:
                data = self.channel.recv(1 << 20, socket.MSG_DONTWAIT)
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
        while not self.gone and select.select([self.control], [], [], 0)[0]:
            self._hear()
        return not self.gone and self.ended is None

    @property
    def pid(self) -> int:
        """The process that runs the program, as the parent sees it; 0 where it cannot."""
        supervisor = self.server.pid(self.place)
        first = tree.children(supervisor) if supervisor else []
        found = tree.children(first[0]) if first else []
        return found[0] if found else 0

    def stop(self) -> None:
        """Stop the child and all that it started until :meth:`go`."""
        self._tell("SIGSTOP")

    def go(self) -> None:
        self._tell("SIGCONT")

    def end(self) -> None:
        """Tell the child and all that it started to end; :meth:`close` waits for it."""
        if not self.closed:
            with contextlib.suppress(OSError):
                send(self.control, {"do": "end"})

    def close(self) -> None:
        """End the child and all that it started."""
        if self.closed:
            return
        self.end()
        self.closed = True
        self.channel.close()
        self.control.settimeout(ENDING)
        try:
            while not self.gone:
                self._hear()
        except TimeoutError:
            self.server.kill(self.place)
        self.control.close()
        for pipe in list(self.pipes):
            self._mute(pipe)
        if self.owns_server:
            self.server.close()

    def _tell(self, signal_name: str) -> None:
        """Have a signal sent to all that lives in the jail, and wait until it was."""
        if self.closed:  # nobody is left to tell
            return
        self.control.settimeout(ENDING)
        with contextlib.suppress(OSError):
            send(self.control, {"do": signal_name})
            while not self.gone and "done" not in self._hear():
                pass

    def _hear(self) -> dict[str, Any]:
        """The next message of the jail's first process; none where all of the jail is gone."""
        message = receive(self.control)
        if message is None:
            self.gone = True
            return {}
        if "status" in message:
            self.ended = int(message["status"]), str(message["why"])
        return message

    def _ended(self) -> str:
        """How the process ended, in words."""
        self.control.settimeout(5)
        with contextlib.suppress(OSError):
            while self.ended is None and not self.gone:
                self._hear()
        if self.ended is None:
            return "gone with its jail" if self.gone else "it closed its channel"
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
