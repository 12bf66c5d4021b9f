"""Checks whose processes serve one after the other: starting torch takes longer than judging a
small twin. What is judged, and how, is the same."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from tilefoundry.diag import Refusal
from tilefoundry.judge.check import Check
from tilefoundry.judge.process import Child
from tilefoundry.judge.report import Report
from tilefoundry.judge.request import Request
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


class Bench:
    """Two processes and the folder that they are kept in."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.folder = tempfile.TemporaryDirectory(prefix="tilefoundry-bench-")
        self.children: dict[str, Kept] = {}

    def start(self, role, twin: bool, libraries: bool, path: str) -> Kept:
        """The process of a role: the evaluator is withheld in one that runs twins, libraries
        in one that may not use them. It can read the file ``path``, and others in its folder."""
        key = f"{role} of {'twins' if twin else 'programs'}, {libraries}"
        known = self.children.get(key)
        if known is None or not known.alive:
            self._end(key)
            known = Kept(role, Path(self.folder.name), 3000.0, self.device, needed=[path])
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

    def close(self) -> None:
        for key in list(self.children):
            self._end(key)

    def _end(self, key: str) -> None:
        if (known := self.children.pop(key, None)) is not None:
            known.close()


class Shared(Check):
    """A check in the processes of a bench."""

    def __init__(self, request: Request, folder: Path, bench: Bench) -> None:
        super().__init__(request, folder)
        self.bench = bench

    def _start(self, role):
        twin = role == "candidate" and (self.request.selector or "").startswith("Twin")
        libraries = self.request.libraries or role != "candidate"
        child = self.bench.start(role, twin, libraries, self.request.path)
        self.children.append(child)
        return child
