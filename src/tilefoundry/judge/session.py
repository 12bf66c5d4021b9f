"""What a check and a measurement have in common: processes, sources, inputs, references."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.judge.about import About, near, sha256, written
from tilefoundry.judge.case import Judged
from tilefoundry.judge.draw import Values
from tilefoundry.judge.files import hold, read_tensor
from tilefoundry.judge.inputs import Drawn, random_inputs
from tilefoundry.judge.later import Later
from tilefoundry.judge.process import Child
from tilefoundry.judge.report import Held
from tilefoundry.judge.request import Request
from tilefoundry.judge.screen import Draw, hold_reference, screen
from tilefoundry.judge.server import documents
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.wire import Malformed


class Session:
    """Processes, inputs and references of a check or a measurement."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.children: list[Child] = []
        self.seed = secrets.randbits(63) if request.seed is None else request.seed
        self.seed_stated = request.seed is not None
        self.sources: dict[str, str] = {}
        """Hashes of source files, taken before anything of them ran: also of the code of hardware
        that the user added, which is part of what evaluates and builds."""
        self.stands: dict[str, tuple[int, ...]] = {}
        """When each was last written: one that is put back after it was read shows."""
        self._note(request.path)
        for schema in sorted(Path(documents(), "targets").glob("*/schema.py")):
            for file in sorted(schema.parent.rglob("*.py")):
                self._note(str(file))
        self.libraries: bool | None = None
        """Whether a twin may compute with libraries; None: candidates are not held to rules."""
        self.later = Later()
        self.hirs: dict[tuple[str, str | None], About] = {}
        """What files of HIR told of themselves, by file and selector."""

    def close(self) -> None:
        self.later.close()
        for child in self.children:
            child.end()
        for server in {child.server for child in self.children}:
            server.abandon()
        for child in self.children:
            child.close()

    def _load(self, child: Child, path: str, selector: str | None, form: str = "") -> None:
        """Let a child begin to execute an author's file; :meth:`_about` takes its answer."""
        consts = dict(self.request.consts or {})
        libraries = self.libraries if child.role == "candidate" else None
        child.begin("load", "loading its file", file=path, selector=selector, consts=consts,
                    form=form, libraries=libraries)  # fmt: skip

    def _about(self, child: Child) -> About:
        """What the file says that a child has executed."""
        try:
            about = About.read(child.finish())
        except Malformed as broken:
            child.died(f"it sent {broken}")
        if not Path(about.file).is_file():
            child.died("it names no file of its module")
        self._note(about.file)
        return about

    def _begin_giving(self, child: Child, about: About, form: str = "", device: str = "") -> None:
        """Let a child begin to read an HIR that another process told, and to be ready to evaluate
        it on a device."""
        poisoned = self.libraries is not None and child.role == "candidate"
        child.begin("read", "reading its program", program=about.program, file=about.file,
                    func=about.func, form=form, poisoned=poisoned, device=device,
                    within=child.seconds)  # fmt: skip

    def _give(self, child: Child, about: About, form: str = "") -> None:
        self._begin_giving(child, about, form)
        answer = child.finish()
        if "malformed" in answer:
            child.died(f"its file sent a program of no known form ({answer['malformed']})")

    def _described(self, reader: Child, hir: About) -> Mapping[str, Any]:
        self._give(reader, hir)
        return reader.ask("describe", "describing its function")

    def _hir(self, author: Child, about: About) -> About:
        """The HIR that a twin says it implements, from a process that executes its file."""
        self._load(author, about.file, f"{about.module}.{about.func}")
        found = self._about(author)
        if found.twin:
            author.died("its module is no HIR")
        return found

    def _opened(
        self, start: Callable[[], Child], path: str, selector: str | None, form: str = ""
    ) -> About:
        """What a file says it is; the last process that was started holds it: a twin the one
        that executed the file, an HIR one that no author's code was in."""
        child = start()
        about = self.hirs.get((path, selector))
        if about is None:
            self._load(child, path, selector, form)
            about = self._about(child)
            if about.twin:
                return about
            self.hirs[path, selector] = about
            child.close()
            child = start()
        self._give(child, about, form)
        return about

    def _note(self, path: str) -> None:
        """Remember a source file as it is now, if it is one that is not known."""
        if path not in self.sources and Path(path).is_file():
            self.stands[path] = written(path)
            self.sources[path] = sha256(path)

    def _hold_sources(self) -> None:
        """Refuse sources that changed while they were judged, also those that are again as they
        were."""
        for path, digest in self.sources.items():
            there = Path(path).is_file() and written(path) == self.stands[path]
            if not there or sha256(path) != digest:
                refuse("check-source-changed", None, path=near(path))

    def _read_files(self) -> dict[str, RawTensor]:
        """Every file that the request names, by path, read while the candidate loads."""
        request = self.request
        parts = [(f.path, f.name or "", f"input {f.name or n}")
                 for n, f in enumerate(request.files or ())]  # fmt: skip
        parts += [(path, f"output[{n}]", f"expected tensor {n}")
                  for n, path in enumerate(request.expected)]  # fmt: skip
        return {path: read_tensor(path, what, name) for path, name, what in parts}

    def _cases(
        self,
        signature: Signature,
        files: Mapping[str, str] | None,
        given: Mapping[str, RawTensor],
    ) -> Iterator[dict[str, int]]:
        """Every combination of extents, each with all open extents bound."""
        dims = self.request.dims or {}
        paths = [None if files is None else files[declared.name] for declared in signature.inputs]
        shapes = [None if path is None else given[path].shape for path in paths]
        for values in itertools.product(*dims.values()):
            yield signature.bind(dict(zip(dims, values, strict=True)), shapes)

    def _key(self, what: str, dims: Mapping[str, int], *more: object) -> tuple[object, ...]:
        return what, *sorted(dims.items()), *more

    def _begin_draws(
        self, signature: Signature, dims: Mapping[str, int], values: Sequence[Values]
    ) -> list[tuple[Any, ...]]:
        """Begin to draw a set at random of each class; what to ask ``later`` for."""
        asked = [(self._key("drawn", dims, n, v), random_inputs, self.seed, signature, dims, n, v)
                 for n, v in enumerate(values)]  # fmt: skip
        for one in asked:
            self.later.begin(*one)
        return asked

    def _draws(
        self,
        signature: Signature,
        dims: Mapping[str, int],
        files: Mapping[str, str] | None,
        given: Mapping[str, RawTensor],
        values: Sequence[Values],
    ) -> list[Drawn]:
        """The sets of inputs: one from files, or one at random of each class."""
        if files is None:
            return [self.later.take(*one) for one in self._begin_draws(signature, dims, values)]
        inputs: dict[str, RawTensor] = {}
        for declared in signature.inputs:
            path = files[declared.name]
            found, shape = given[path], declared.shape(dims)
            what = f"input {declared.name}"
            hold(what, path, (found.dtype, found.shape), declared.dtype, shape)
            inputs[declared.name] = found
        return [Drawn("given", inputs)]

    def _held(
        self, dims: Mapping[str, int], draws: Sequence[Drawn], files: Mapping[str, str] | None
    ) -> list[Held]:
        """The inputs that were used, and where each is from."""
        held: list[Held] = []
        for number, draw in enumerate(draws):
            for name, tensor in draw.inputs.items():
                given = files is not None and draw.values == "given"
                origin = files[name] if files and given else f"{draw.values}:{number}"
                held.append(Held("input", name, origin, dims, tensor))
                self.later.begin(id(tensor), lambda tensor=tensor: tensor.sha256)
        return held

    def _screen(self, judged: Judged, draws: Mapping[str, Sequence[Draw]]) -> dict[str, list[str]]:
        """Notes on each output, after refusing references and predicates that prove nothing."""
        notes: dict[str, list[str]] = {}
        for name, predicates in judged.items():
            for draw in draws[name]:
                hold_reference(name, predicates, draw.reference)
            notes[name] = screen(name, predicates, draws[name])
        return notes
