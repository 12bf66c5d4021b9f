"""Checks whose processes serve one after the other: starting torch takes longer than judging a
small twin. What is judged, and how, is the same."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import wait
from pathlib import Path

from tilefoundry.diag import Refusal
from tilefoundry.judge.check import Check
from tilefoundry.judge.process import Child
from tilefoundry.judge.report import Report
from tilefoundry.judge.request import Request
from tilefoundry.judge.server import Server
from tilefoundry.judge.wire import Malformed

ENDED = ("check-candidate-died", "check-reference-died", "check-timeout")


class Kept(Child):
    """A process that knows whether it owes an answer to a check that ended early."""

    owes = 0

    def begin(self, what, doing, **request):
        self.owes += 1
        super().begin(what, doing, **request)

    def finish(self):
        self.owes -= 1
        return super().finish()

    def end(self):
        """It serves the next check."""

    def really_end(self):
        super().end()
        self.close()


class Bench:
    """Processes, one for each role and kind, and the folder that they are kept in."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.folder = tempfile.TemporaryDirectory(prefix="tilefoundry-bench-")
        self.children: dict[str, Kept] = {}
        self.servers: dict[bool, Server] = {}

    def start(self, role, kind: str, libraries: bool, path: str) -> Kept:
        """The process of a role and kind: the evaluator is withheld in one that executes twins,
        libraries in one whose twins may not use them. It can read the file ``path``, and others
        in its folder."""
        key = f"{role} {kind} {libraries}"
        known = self.children.get(key)
        if known is None or not known.alive:
            self._end(key)
            place = Path(self.folder.name)
            if libraries not in self.servers:
                imported = "torch" if libraries else "torch without numpy"
                self.servers[libraries] = Server(place, imported=imported)
            known = Kept(role, place, 3000.0, self.device, needed=[path],
                         server=self.servers[libraries])  # fmt: skip
            self.children[key] = known
        known.go()
        while known.owes:
            with contextlib.suppress(Refusal):
                known.finish()
        return known

    def check(self, request: Request) -> Report:
        """A check in these processes; those of one that ends are replaced by the next."""
        with tempfile.TemporaryDirectory() as own:
            session = Shared(request, Path(own), self)
            try:
                return session.judge()
            except Malformed as broken:
                session.children[-1].died(f"it sent {broken}")
            except Refusal as refusal:
                if refusal.diags[0].code in ENDED:
                    self.close()
                raise
            finally:
                if session.ahead is not None:
                    wait([session.ahead.case])

    def close(self) -> None:
        for key in list(self.children):
            self._end(key)
        for server in self.servers.values():
            server.close()
        self.servers.clear()

    def _end(self, key: str) -> None:
        if (known := self.children.pop(key, None)) is not None:
            known.really_end()


class Shared(Check):
    """A check in the processes of a bench."""

    def __init__(self, request: Request, folder: Path, bench: Bench) -> None:
        super().__init__(request, folder)
        self.bench = bench

    def _start(self, role, kind):
        libraries = self.request.libraries or kind != "twin"
        child = self.bench.start(role, kind, libraries, self.request.path)
        self.children.append(child)
        return child
