"""``check``: do two computations agree. The parent's side, from request to report.

The candidate is a process; the reference is a file of expected tensors or another process,
started while the candidate is stopped. The two share no memory and no writable file. The
parent holds the answers, the bounds and the seed, and compares raw bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.judge.channel import Malformed
from tilefoundry.judge.files import hold, read_tensor
from tilefoundry.judge.predicates import Finding, compare, worst_row
from tilefoundry.judge.process import Child, Role
from tilefoundry.judge.report import Held, Report, Row
from tilefoundry.judge.request import Request, judged_outputs, named_files
from tilefoundry.judge.run import Runner
from tilefoundry.judge.screen import Draw, hold_predicates, hold_reference, screen
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.weights import gather_weights

RANDOM_DRAWS = 2
"""Sets of random inputs: the second differs, so that an answer kept from the first is wrong."""
FILE_RUNS = 2


def check(request: Request) -> Report:
    """Carry out one check; refuses whatever keeps it from a verdict."""
    _require_device(request)
    with tempfile.TemporaryDirectory(prefix="tilefoundry-check-") as folder:
        session = Session(request, Path(folder))
        try:
            return session.judge()
        except Malformed as broken:
            session.children[-1].died(f"it sent {broken}")
        finally:
            session.close()


def _require_device(request: Request) -> None:
    """Refuse a device that torch does not have here."""
    if request.device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        why = "this torch is built for CPUs" if torch.version.cuda is None else "torch finds none"
        refuse("check-device", None, device=request.device, why=why)


@dataclass(frozen=True)
class About:
    """What a candidate says it is: a twin or the HIR, its class, and where its module stands."""

    twin: bool
    name: str
    file: str
    module: str
    func: str
    kernel: bool = False
    """What is called is the HIR's own kernel."""

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> About:
        try:
            twin, *words, kernel = (record[field.name] for field in fields(cls))
        except KeyError as error:
            raise Malformed(f"a description without its {error}") from None
        name, file, module, func = map(str, words)
        return cls(twin is True, name, file, module, func, kernel is True)


class Session:
    """One check under way: its folder, its processes, what it has found."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.children: list[Child] = []
        self.seed = request.seed
        if self.seed is None and (request.files is None or request.weights == "random"):
            self.seed = secrets.randbits(63)

    def close(self) -> None:
        for child in self.children:
            child.close()

    def judge(self) -> Report:
        request = self.request
        candidate = self._start("candidate")
        form = "tir" if request.lowered else "kernel" if request.built else ""
        self._load(candidate, request.path, request.selector, form)
        evaluator = None
        if not request.expected:
            evaluator = self._start("reference")
            evaluator.begin("warm", "starting torch")
        given = self._read_files()
        about = About.read(candidate.finish())
        described = candidate
        if about.twin:
            candidate.stop()
            described = evaluator or self._start("reference")
            if evaluator is not None:
                evaluator.finish()
            self._load(described, about.file, f"{about.module}.{about.func}")
            described.finish()
        signature = Signature.read(described.ask("describe", "describing its function"))
        if not about.twin and not request.expected:
            refuse("check-expected-absent", None, function=signature.name)
        judged = judged_outputs(request.outs, signature)
        for output in signature.outputs:
            hold_predicates(output.name, judged[output.name], output.dtype)
        weights = gather_weights(request.weights, signature, self.seed, self.folder)
        files = None if request.files is None else named_files(request.files, signature)
        cases = list(self._cases(signature, files, given))
        self._hold_expected(signature, len(cases))

        reference = None
        if not request.expected:
            reference = Runner(described, signature, weights, request.device, self.folder)
        prepared = None
        tensors: list[Held] = []
        rows: list[Row] = []
        for dims in cases:
            draws = self._draws(signature, dims, files, given)
            wanted = [self._expected(signature, dims, given)] if reference is None else [
                reference.run(inputs, ()) for inputs in draws
            ]  # fmt: skip
            notes = self._screen(judged, draws, wanted)
            candidate.go()
            if prepared is None:
                prepared = Runner(candidate, signature, weights, request.device, self.folder)
            rows += self._case(prepared, signature, dims, judged, draws, wanted, notes)
            if about.twin:
                candidate.stop()
            tensors += self._held(dims, draws, wanted, files)
        assert prepared is not None
        candidate.go()
        prepared.hold_weights()
        return Report(
            request.source,
            f"{about.name}.{about.func}",
            form or ("twin" if about.twin else "hir"),
            request.device,
            version("torch"),
            self.seed,
            RANDOM_DRAWS if files is None else FILE_RUNS,
            {near(path): sha256(path) for path in (request.path, about.file)},
            _reference(request, f"{near(about.file)}:{about.module}"),
            weights.record(),
            tensors,
            rows,
        )

    def _start(self, role: Role) -> Child:
        child = Child(role, self.folder, self.request.seconds, self.request.device)
        self.children.append(child)
        return child

    def _load(self, child: Child, path: str, selector: str | None, form: str = "") -> None:
        """Let a child begin to load a program; its answer is still to be taken."""
        consts = dict(self.request.consts or {})
        child.begin("load", "loading its file", file=path, selector=selector, consts=consts,
                    form=form)  # fmt: skip

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

    def _hold_expected(self, signature: Signature, cases: int) -> None:
        request = self.request
        if not request.expected:
            return
        if request.files is None or cases != 1:
            found = "random inputs" if request.files is None else f"{cases} sets of extents"
            refuse("check-expected-random", None, found=found)
        if len(request.expected) != len(signature.outputs):
            refuse("check-expected-count", None, function=signature.name,
                   expected=len(signature.outputs), found=len(request.expected))  # fmt: skip

    def _draws(
        self,
        signature: Signature,
        dims: Mapping[str, int],
        files: Mapping[str, str] | None,
        given: Mapping[str, RawTensor],
    ) -> list[dict[str, RawTensor]]:
        """The sets of inputs: one from files, or several at random."""
        if files is not None:
            inputs: dict[str, RawTensor] = {}
            for declared in signature.inputs:
                path = files[declared.name]
                found, shape = given[path], declared.shape(dims)
                what = f"input {declared.name}"
                hold(what, path, (found.dtype, found.shape), declared.dtype, shape)
                inputs[declared.name] = found
            return [inputs]
        from tilefoundry.judge.draw import draw, stream
        from tilefoundry.judge.extent import extent

        assert self.seed is not None
        sets: list[dict[str, RawTensor]] = []
        for number in range(RANDOM_DRAWS):
            drawn: dict[str, RawTensor] = {}
            for declared in signature.inputs:
                rng = stream(self.seed, "input", declared.name, sorted(dims.items()), number)
                index = None if declared.index is None else (0, extent(declared.index, dims))
                drawn[declared.name] = draw(rng, declared.dtype, declared.shape(dims), index)
            sets.append(drawn)
        return sets

    def _expected(
        self, signature: Signature, dims: Mapping[str, int], given: Mapping[str, RawTensor]
    ) -> list[RawTensor]:
        outputs: list[RawTensor] = []
        for declared, path in zip(signature.outputs, self.request.expected, strict=True):
            found = given[path]
            what = f"the expected tensor of {declared.name}"
            hold(what, path, (found.dtype, found.shape), declared.dtype, declared.shape(dims))
            outputs.append(found)
        return outputs

    def _screen(
        self,
        judged: Mapping[str, Sequence[Predicate]],
        draws: Sequence[Mapping[str, RawTensor]],
        wanted: Sequence[Sequence[RawTensor]],
    ) -> dict[str, list[str]]:
        """Notes on each output, after refusing references and predicates that prove nothing."""
        notes: dict[str, list[str]] = {}
        for n, (name, predicates) in enumerate(judged.items()):
            for outputs in wanted:
                hold_reference(name, predicates, outputs[n])
            pairs = [Draw(outs[n], ins) for outs, ins in zip(wanted, draws, strict=True)]
            notes[name] = screen(name, predicates, pairs)
        return notes

    def _case(
        self,
        candidate: Runner,
        signature: Signature,
        dims: Mapping[str, int],
        judged: Mapping[str, Sequence[Predicate]],
        draws: Sequence[Mapping[str, RawTensor]],
        wanted: Sequence[Sequence[RawTensor]],
        notes: Mapping[str, Sequence[str]],
    ) -> list[Row]:
        """Run the candidate and judge each output by each predicate, keeping the worst run."""
        order = range(len(draws)) if len(draws) > 1 else [0] * FILE_RUNS
        worst: dict[tuple[str, int], Row] = {}
        for run, number in enumerate(order):
            poison = [output.nbytes for output in wanted[number]]
            got = candidate.run(draws[number], poison)
            candidate.hold_outputs(got, dims)
            for n, (name, predicates) in enumerate(judged.items()):
                want = wanted[number][n]
                findings = compare(predicates, got[n], want)
                bad = not all(f.passed for f in findings)
                row = worst_row(got[n], want) if bad else None
                for place, finding in enumerate(findings):
                    seen = Row(name, dims, finding, run, row if not finding.passed else None,
                               notes[name])  # fmt: skip
                    known = worst.get((name, place))
                    if known is None or _worse(finding, known.finding):
                        worst[name, place] = seen
        return [worst[name, n] for name in judged for n in range(len(judged[name]))]

    def _held(
        self,
        dims: Mapping[str, int],
        draws: Sequence[Mapping[str, RawTensor]],
        wanted: Sequence[Sequence[RawTensor]],
        files: Mapping[str, str] | None,
    ) -> list[Held]:
        held: list[Held] = []
        for number, drawn in enumerate(draws):
            for name, tensor in drawn.items():
                origin = files[name] if files is not None else f"random:{number}"
                held.append(Held("input", name, origin, dims, tensor))
        for n, path in enumerate(self.request.expected):
            held.append(Held("expected", f"output[{n}]", path, dims, wanted[0][n]))
        return held


def _worse(a: Finding, b: Finding) -> bool:
    if a.passed != b.passed:
        return b.passed
    return a.value < b.value if a.predicate.fn == "cosine" else a.value > b.value


def _reference(request: Request, source: str) -> dict[str, str]:
    if request.expected:
        return {"kind": "files", "files": ",".join(request.expected)}
    return {
        "kind": "hir",
        "module": source,
        "against_published_model": "unverified",
    }


def near(path: str) -> str:
    """A path as seen from here: relative where it lies below."""
    from_here = os.path.relpath(path)
    return path if from_here.startswith(os.pardir) else from_here


def sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
