"""A process of the judge's, once it is jailed (``judge/jail``).

Either it executes an author's file: then it calls the twin that the file declares, or tells the
HIR as data. Or it is given an HIR as data, and no author's code is ever in it: it evaluates,
lowers and builds. It takes requests over a socket, answers each, and ends when the socket
closes. It holds no answer, bound or seed. What it says is not believed: outputs are read as
bytes and typed by the parent.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, cast

import tilefoundry
from tilefoundry.diag import Diag, Refusal, refuse
from tilefoundry.judge.call import Calls, bytes_of
from tilefoundry.judge.measure.stage import Stage
from tilefoundry.judge.wire import receive, send
from tilefoundry.judge.withheld import withhold

OURS = str(Path(tilefoundry.__file__).parent)
MADE = {"tir": "lowered", "kernel": "built", "model": "built"}
"""What is made of an HIR, and the option that asks for it."""


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

    def warm(self, device: str = "cpu") -> dict[str, Any]:
        """Import what evaluation needs, and begin with a device, while the parent waits for
        another."""
        import torch

        import tilefoundry.evaluate.run  # noqa: F401

        if device != "cpu":
            torch.zeros(1, device=device)
        return {"torch": torch.__version__}

    def load(
        self,
        file: str,
        selector: str | None,
        consts: Mapping[str, Any],
        form: str = "",
        libraries: bool | None = None,
    ) -> dict[str, Any]:
        """Execute the author's file; answers where the module stands that it is about, and of an
        HIR the program as data: this process has no further part in that.

        ``form``: what is to be called is the program's lowering, interpreted (``tir``), or its
        kernel, compiled (``kernel``); ``timed``: a twin as it is, of an HIR the kernel;
        empty for what the file itself says. ``libraries``: see :meth:`rules`.
        """
        from tilefoundry.judge.signature import source_of
        from tilefoundry.lang.encode import to_data
        from tilefoundry.lang.load import load_source

        if libraries is not None:
            self.rules(libraries)
        self.subject = self.loaded = None
        loaded = load_source(file, selector, consts)
        if not loaded.func:
            module = loaded.module
            refuse("function-unstated", module.span, module=module.name, func="none",
                   known=" ".join(module.funcs) or "none")  # fmt: skip
        cls, program = loaded.cls, None
        if not loaded.is_twin:
            program = to_data(loaded.module)
        else:
            withhold()
            if form in MADE:
                refuse("check-lowered-twin", None, name=cls.__qualname__, option=MADE[form])
            self.loaded = loaded
        module = getattr(cls, "__tilefoundry_implements__", cls)
        return {
            "twin": loaded.is_twin,
            "name": cls.__qualname__,
            "file": source_of(module),
            "module": module.__qualname__,
            "func": loaded.func,
            "target": "" if loaded.module.target is None else loaded.module.target.id,
            "program": program,
        }

    def read(
        self,
        program: Any,
        file: str,
        func: str,
        form: str = "",
        poisoned: bool = False,
        device: str = "",
        within: float = inf,
    ) -> dict[str, Any]:
        """Take an HIR as the data that :meth:`load` told elsewhere; ``malformed`` if that states
        none. ``form`` as there; ``poisoned``: memory that nobody wrote is to hold poison;
        ``device`` is what it will be evaluated on, empty for nowhere; ``within``: the seconds
        that this process has."""
        from tilefoundry.lang.decode import NotAProgram, from_data
        from tilefoundry.lang.load import Selected

        if poisoned:
            self.rules(libraries=True)
        self.subject = None
        try:
            module = from_data(program)
        except NotAProgram as broken:
            return {"malformed": str(broken)}
        if func not in module.funcs:
            return {"malformed": f"a program without {func}"}
        self.loaded = Selected(file, module, func)
        if form:
            self.subject = self._made(form, within)
        elif device:
            self.warm(device)
        return {}

    def _made(self, form: str, within: float) -> Any:
        if form == "tir":
            from tilefoundry.judge.lowered import Interpreted

            return Interpreted(self.loaded, within)
        from tilefoundry.build import build, callable_of

        return callable_of(build(self.loaded, model=form == "model"))

    def describe(self) -> dict[str, Any]:
        """The signature of the function, and the program's text as it was understood."""
        from tilefoundry.evaluate import weight_types
        from tilefoundry.judge.signature import describe
        from tilefoundry.lang.printer import print_module

        module = self.loaded.module
        described = describe(module, self.loaded.func, weight_types(module))
        return {**described, "text": print_module(module)}

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
