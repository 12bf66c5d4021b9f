"""The process that executes an author's program, once it is jailed (``judge/jail``).

It takes requests over a socket, answers each, and ends when the socket closes. It holds
no answer, bound or seed. What it says is not believed: outputs are read as bytes and typed by
the parent.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import tilefoundry
from tilefoundry.diag import Diag, Refusal, refuse
from tilefoundry.judge.call import Calls, bytes_of
from tilefoundry.judge.measure.stage import Stage
from tilefoundry.judge.wire import receive, send
from tilefoundry.judge.withheld import withhold

OURS = str(Path(tilefoundry.__file__).parent)


def main(end: socket.socket, isolation: Mapping[str, str]) -> None:
    """Say what protections hold, then serve requests until the parent closes its end."""
    sys.excepthook = _last_words
    faulthandler.enable()
    program = Program()
    send(end, {"isolation": dict(isolation)})
    given: list[int] = []
    while (request := receive(end, given)) is not None:
        program.files |= dict(zip(request.pop("given"), given, strict=True))
        given.clear()
        what = request.pop("do")
        if what == "take":
            continue
        try:
            answer = getattr(program, what)(**request)
        except Refusal as refusal:
            answer = {"refusal": [_record(diag) for diag in refusal.diags]}
        for number in program.files.values():
            os.close(number)
        program.files.clear()
        send(end, answer)


def _record(diag: Diag) -> dict[str, Any]:
    span = diag.span
    place = [span.file, span.line, span.col, span.end_line, span.end_col] if span else None
    fields = {name: str(value) for name, value in diag.fields.items()}
    return {"code": diag.code, "span": place, "fields": fields, "notes": list(diag.notes)}


def _last_words(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print an author's failure without our own frames around it."""
    frames = traceback.extract_tb(trace)
    theirs = [f for f in frames if not f.filename.startswith((OURS, "<frozen"))]
    for line in traceback.format_list(theirs or frames):
        sys.stderr.write(line)
    for line in traceback.format_exception_only(kind, error):
        sys.stderr.write(line)


class Program(Calls, Stage):
    """The loaded program and its tensors."""

    loaded: Any
    device: str
    subject: Any = None
    weights: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, int] = {}
        """Descriptors of the files that came with a request, by the path it names them by."""

    def open(self, path: str, mode: str) -> BinaryIO:
        """A file that came with the request; no other is known here."""
        return cast(BinaryIO, os.fdopen(os.dup(self.files[path]), mode))

    def warm(self) -> dict[str, Any]:
        """Import what evaluation needs, while the parent waits for another."""
        import torch

        return {"torch": torch.__version__}

    def load(
        self, file: str, selector: str | None, consts: Mapping[str, Any], form: str = ""
    ) -> dict[str, Any]:
        """Execute the author's file; answers where the module stands that it is about.

        ``form``: what is called is the program's lowering, interpreted (``tir``), or its
        kernel, compiled (``kernel``); ``timed``: a twin as it is, of an HIR the kernel;
        empty for what the file itself says.
        """
        from tilefoundry.judge.signature import source_of
        from tilefoundry.lang.load import load_source

        self.subject = None
        self.loaded = load_source(file, selector, consts)
        if not self.loaded.func:
            module = self.loaded.module
            refuse("function-unstated", module.span, module=module.name, func="none",
                   known=" ".join(module.funcs) or "none")  # fmt: skip
        cls, twin = self.loaded.cls, self.loaded.is_twin
        if twin:
            withhold()
        if form == "timed":
            form = "" if twin else "kernel"
        if form:
            if twin:
                option = "lowered" if form == "tir" else "built"
                refuse("check-lowered-twin", None, name=cls.__qualname__, option=option)
            self.subject, twin = self._made(form), True
        module = getattr(cls, "__tilefoundry_implements__", cls)
        return {
            "twin": twin,
            "name": cls.__qualname__,
            "file": source_of(module),
            "module": module.__qualname__,
            "func": self.loaded.func,
            "target": "" if self.loaded.module.target is None else self.loaded.module.target.id,
            "kernel": form == "kernel",
        }

    def _made(self, form: str) -> Any:
        if form == "tir":
            from tilefoundry.judge.lowered import Interpreted

            return Interpreted(self.loaded)
        from tilefoundry.build import build, callable_of

        return callable_of(build(self.loaded))

    def describe(self) -> dict[str, Any]:
        """The signature of the loaded function."""
        from tilefoundry.evaluate import weight_types
        from tilefoundry.judge.signature import describe

        module, cls = self.loaded.module, self.loaded.cls
        implemented = getattr(cls, "__tilefoundry_implements__", cls)
        return describe(module, self.loaded.func, implemented, weight_types(module))

    def prepare(self, weights: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, Any]:
        """Take the weights and make what will be called."""
        self.device = device
        self.weights = {name: self._tensor(place, False)[2] for name, place in weights.items()}
        if self.loaded.is_twin:
            self.subject = self.loaded.cls(dict(self.weights))
        elif self.subject is not None:
            self.subject.weights = self.weights
        return {"weights": {name: _digest(value) for name, value in self.weights.items()},
                "manners": self.manners()}  # fmt: skip

    def digests(self) -> dict[str, Any]:
        """Digests of the weights as they are now."""
        return {"weights": {name: _digest(value) for name, value in self.weights.items()}}


def _digest(tensor: Any) -> str:
    if not tensor.numel():
        return ""
    flat = tensor.detach().cpu().contiguous()
    return hashlib.blake2b(bytes_of(flat), digest_size=16).hexdigest()
