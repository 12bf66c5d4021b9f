"""``check``: do two computations agree. The parent's side, from request to report.

The candidate is a process; the reference is a file of expected tensors or another process,
started while the candidate is stopped. The two share no memory and no writable file. The
parent holds the answers, the bounds and the seed, and compares raw bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tilefoundry
from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge import artefacts
from tilefoundry.judge.about import About, near, reference_record, sha256
from tilefoundry.judge.case import Case, Judged
from tilefoundry.judge.device import require as require_device
from tilefoundry.judge.draw import Values, stream
from tilefoundry.judge.files import hold, read_tensor
from tilefoundry.judge.inputs import (
    Drawn,
    Turn,
    classes,
    coarse_inputs,
    neighbours,
    random_inputs,
    shuffled_inputs,
    touched_inputs,
    turns,
)
from tilefoundry.judge.process import Child, Role
from tilefoundry.judge.report import Held, Report
from tilefoundry.judge.request import Request, judged_outputs, named_files
from tilefoundry.judge.run import Runner
from tilefoundry.judge.screen import Draw, hold_predicates, hold_reference, judgeable, screen
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.weights import gather_weights
from tilefoundry.judge.wire import Malformed

PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of children wait asleep: on a busy machine those that spin hold up each other."""
SLOW_SECONDS = 5.0
"""Where one evaluation of the reference takes longer, it is not evaluated for figures that no
verdict needs: errors against float64, and results on coarser inputs."""


def check(request: Request) -> Report:
    """Carry out one check; refuses whatever keeps it from a verdict."""
    require_device(request.device)
    with tempfile.TemporaryDirectory(prefix="tilefoundry-check-") as folder:
        session = Check(request, Path(folder))
        try:
            return session.judge()
        except Malformed as broken:
            session.children[-1].died(f"it sent {broken}")
        finally:
            session.close()


class Session:
    """Processes, inputs and references of a check or a measurement."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.children: list[Child] = []
        self.seed = secrets.randbits(63) if request.seed is None else request.seed
        self.sources = {request.path: sha256(request.path)} if Path(request.path).is_file() else {}
        """Hashes of source files, taken before anything of them ran."""

    def close(self) -> None:
        for child in self.children:
            child.close()

    def _load(self, child: Child, path: str, selector: str | None, form: str = "") -> None:
        """Let a child begin to load a program; its answer is still to be taken."""
        consts = dict(self.request.consts or {})
        child.begin("load", "loading its file", file=path, selector=selector, consts=consts,
                    form=form)  # fmt: skip

    def _hold_sources(self) -> None:
        """Refuse sources that changed while they were judged."""
        for path, digest in self.sources.items():
            if not Path(path).is_file() or sha256(path) != digest:
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
            with ThreadPoolExecutor() as pool:  # numpy draws without holding the interpreter
                drawn = [pool.submit(random_inputs, self.seed, signature, dims, n, v)
                         for n, v in enumerate(values)]  # fmt: skip
            return [one.result() for one in drawn]
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
        return held

    def _screen(self, judged: Judged, draws: Mapping[str, Sequence[Draw]]) -> dict[str, list[str]]:
        """Notes on each output, after refusing references and predicates that prove nothing."""
        notes: dict[str, list[str]] = {}
        for name, predicates in judged.items():
            for draw in draws[name]:
                hold_reference(name, predicates, draw.reference)
            notes[name] = screen(name, predicates, draws[name])
        return notes


class Check(Session):
    """One check under way: what it has found."""

    def __init__(self, request: Request, folder: Path) -> None:
        super().__init__(request, folder)
        self.notes: list[str] = []
        self.reference: Runner | None = None
        self.stops = False
        self.slow = False
        """Whether the last evaluation of the reference took long."""
        self.candidate: Child

    def judge(self) -> Report:
        request = self.request
        self.candidate = candidate = self._start("candidate")
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
            self.stops = True
            candidate.stop()
            described = evaluator or self._start("reference")
            if evaluator is not None:
                evaluator.finish()
            self._load(described, about.file, f"{about.module}.{about.func}")
            described.finish()
        self.sources.setdefault(about.file, sha256(about.file))
        signature = Signature.read(described.ask("describe", "describing its function"))
        if not about.twin and not request.expected:
            refuse("check-expected-absent", None, function=signature.name)
        judged = judged_outputs(request.outs, signature)
        for output in signature.outputs:
            hold_predicates(output.name, judged[output.name], output.dtype)
        weights = gather_weights(request.weights, signature, self.seed, self.folder)
        files = None if request.files is None else named_files(request.files, signature)
        cases = [(dims, False) for dims in self._cases(signature, files, given)]
        self._hold_expected(signature, len(cases))
        if not about.twin:  # it imports torch while its predicates are tried
            candidate.begin("warm", "starting torch")
        if about.twin and files is None and not request.only and not form:
            rng = stream(self.seed, "neighbours")
            cases += [(d, True) for d in neighbours(rng, signature, [d for d, _ in cases])]

        if not request.expected or (about.twin and not form):
            self.reference = Runner(described, signature, weights, request.device, self.folder)
        prepared: Runner | None = None
        done: list[Case] = []
        tensors: list[Held] = []
        for dims, near_by in cases:
            if near_by and not all(case.agrees for case in done):
                break
            case = self._case(signature, dims, near_by, judged, files, given)
            if case is None:
                continue
            candidate.go()
            if prepared is None:
                prepared = Runner(candidate, signature, weights, request.device, self.folder)
                if self.reference is None and not self.own:  # a schedule evaluates for minutes
                    case.evaluate = self._evaluation(prepared)
            self._run(prepared, case, signature)
            weights.hold()
            tensors += self._held(dims, case.draws, files)
            tensors += [Held("expected", f"output[{n}]", path, dims, case.wanted[0][n])
                        for n, path in enumerate(request.expected)]  # fmt: skip
            done.append(case)
        assert prepared is not None
        candidate.go()
        errors = [] if self.slow else done[0].errors()
        candidate.go()
        prepared.hold_weights()
        self._hold_sources()
        self._hold_libraries(described)
        return self._report(about, form, signature, judged, weights.record(), done, errors,
                            tensors, prepared)  # fmt: skip

    @property
    def own(self) -> bool:
        """Whether the candidate is what we make of the HIR ourselves."""
        return self.request.lowered or self.request.built

    # ---- processes

    def _start(self, role: Role) -> Child:
        request = self.request
        hidden = request.expected if role == "candidate" else ()
        child = Child(role, self.folder, request.seconds, request.device, PATIENT, hidden,
                      needed=[request.path])  # fmt: skip
        self.children.append(child)
        return child

    def _load(self, child: Child, path: str, selector: str | None, form: str = "") -> None:
        if child.role == "candidate":
            child.ask("rules", "starting", libraries=self.request.libraries)
        super()._load(child, path, selector, form)

    def _evaluation(self, runner: Runner) -> Any:
        """How a case has its inputs evaluated in float64, while the candidate is stopped."""

        def evaluate(inputs: Mapping[str, RawTensor], most: int) -> tuple[Sequence[RawTensor], str]:
            if runner.child is not self.candidate:
                self.candidate.stop()
            try:
                return runner.exact(inputs, most)
            finally:
                self.candidate.go()

        return evaluate

    # ---- cases

    def _case(
        self,
        signature: Signature,
        dims: Mapping[str, int],
        near_by: bool,
        judged: Judged,
        files: Mapping[str, str] | None,
        given: Mapping[str, RawTensor],
    ) -> Case | None:
        """The inputs of one set of extents and what is wanted on each; None for a neighbour that
        the reference does not cover."""
        special = any(p.fn == "nan_inf" for fns in judged.values() for p in fns)
        values = ("ordinary",) if near_by else classes(special)
        if self.request.lowered:  # interpreted, under several orders each
            values = values[:1]
        elif self.request.built:  # it keeps nothing, and a scheduled HIR takes long to evaluate
            values = values[:2]
        draws = self._draws(signature, dims, files, given, values)
        kept: list[Drawn] = []
        wanted: list[Sequence[RawTensor]] = []
        if self.request.expected:
            kept, wanted = draws, [self._expected(signature, dims, given)]
            draws = []
        if files is not None and self.reference is not None:
            held_out = shuffled_inputs(self.seed, (kept or draws)[0].inputs)
            draws = [*draws, *([held_out] if held_out is not None else [])]
        if self.stops and not near_by and draws and not self.own:
            touched = touched_inputs(self.seed, draws[0].inputs)
            draws[1:1] = [touched] if touched is not None else []
        for draw in draws:
            found = self._wanted(draw, dims, near_by, judged)
            if found is not None:
                kept.append(draw)
                wanted.append(found)
        if not kept:
            return None
        evaluate = self._evaluation(self.reference) if self.reference else _nobody
        case = Case(dims, judged, kept, wanted, evaluate, near_by)
        if not near_by:
            case.notes = self._screen(judged, self._to_screen(judged, case))
        return case

    def _wanted(
        self, draw: Drawn, dims: Mapping[str, int], near_by: bool, judged: Judged
    ) -> Sequence[RawTensor] | None:
        """The reference's outputs on a set; None, and a note, where it has none to judge by on
        a set that nobody asked for."""
        assert self.reference is not None
        began = time.monotonic()
        what = f"{draw.values} values"
        if near_by:
            what = " ".join(f"{name}={value}" for name, value in dims.items())
        try:
            found = self.reference.run(draw.inputs, ())
        except Refusal as refusal:
            if draw.strict and not near_by:
                raise
            self.notes.append(f"{what} left out: {refusal.diags[0].says}")
            return None
        self.slow = time.monotonic() - began > SLOW_SECONDS
        if draw.strict and not near_by:
            return found
        pairs = zip(judged.values(), found, strict=True)
        if all(judgeable(predicates, output) for predicates, output in pairs):
            return found
        self.notes.append(f"{what} left out: the reference is not finite there")
        return None

    def _to_screen(self, judged: Judged, case: Case) -> dict[str, list[Draw]]:
        """What predicates are tried on: the sets that bounds were stated for, and the next."""
        others: list[dict[str, Sequence[RawTensor]]] = [{} for _ in case.draws]
        wide = next((n for n, draw in enumerate(case.draws) if draw.values == "wide"), None)
        if wide is not None:
            others[0]["the result on other inputs"] = case.wanted[wide]
            others[wide]["the result on other inputs"] = case.wanted[0]
        coarse = coarse_inputs(case.draws[0].inputs)
        if self.slow or self.request.expected:
            coarse = None
        if coarse is not None and self.reference is not None:
            name = "the result on inputs rounded to the 8 bits of bf16 (f64: to f32)"
            others[0][name] = self.reference.run(coarse, ())
        found: dict[str, list[Draw]] = {}
        for n, name in enumerate(judged):
            found[name] = [
                Draw(case.wanted[at][n], draw.inputs, {k: v[n] for k, v in others[at].items()})
                for at, draw in enumerate(case.draws)
                if at in (0, wide)
            ]
        return found

    def _run(self, candidate: Runner, case: Case, signature: Signature) -> None:
        """Call the candidate and judge each call."""
        if case.neighbour:
            extents = " ".join(f"{name}={value}" for name, value in case.dims.items())
            candidate.where = f" at {extents}, which the open extents allow"
        if self.request.lowered or not self.stops or case.neighbour:
            planned = [Turn(n) for n in range(len(case.draws))]
        else:
            rng = stream(self.seed, "turns", sorted(case.dims.items()))
            planned = turns(rng, case.draws, self.request.views)
        for turn in planned:
            poison = [output.nbytes for output in case.wanted[turn.draw]]
            inputs = case.draws[turn.draw].inputs
            got = candidate.run(inputs, poison, turn.arrangement, turn.same)
            candidate.hold_outputs(got, case.dims)
            case.take(turn, got)
        candidate.end()
        if self.stops:
            self.candidate.stop()

    # ---- what is held

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

    def _hold_libraries(self, usual: Child) -> None:
        """Refuse libraries that the candidate executes and a process that evaluates has not."""
        if self.request.libraries or usual is self.candidate:
            return
        mine, theirs = (artefacts.mapped(child.pid) for child in (self.candidate, usual))
        for name in artefacts.libraries(mine, theirs):
            refuse("check-library-called", None, what=Path(name).name)

    # ---- the answer

    def _report(
        self,
        about: About,
        form: str,
        signature: Signature,
        judged: Judged,
        weights: Mapping[str, object],
        done: Sequence[Case],
        errors: Sequence[Any],
        tensors: Sequence[Held],
        prepared: Runner,
    ) -> Report:
        request = self.request
        stated = {name: [str(p) for p in predicates] for name, predicates in judged.items()}
        known = all(draw.values == "given" for case in done for draw in case.draws)
        if known and about.twin:
            self.notes.append("all inputs and expected values were known before the candidate ran")
        repeats = [case.repeats for case in done if case.repeats is not None]
        return Report(
            request.record(),
            request.source,
            f"{about.name}.{about.func}",
            form or ("twin" if about.twin else "hir"),
            about.target,
            request.device,
            {"tilefoundry": tilefoundry.__version__, "torch": version("torch"),
             "numpy": version("numpy"), "python": platform.python_version()},
            self.seed,
            {near(path): digest for path, digest in self.sources.items()},
            artefacts.hashes(self.candidate.pid) if about.twin else {},
            self.candidate.isolation or {},
            prepared.manners.record(),
            "allowed" if request.libraries else "refused",
            reference_record(request, about, bool(request.expected and self.reference)),
            hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(),
            weights,
            tensors,
            [row for case in done for row in case.rows()],
            [turn for case in done for turn in case.turns],
            errors,
            all(repeats) if repeats else None,
            self.notes,
        )  # fmt: skip


def _nobody(inputs: Mapping[str, RawTensor], most: int) -> tuple[Sequence[RawTensor], str]:
    return [], "the reference is not evaluated"
