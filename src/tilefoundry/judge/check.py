"""``check``: do two computations agree. The parent's side, from request to report.

The candidate is a process; the reference is a file of expected tensors or another process. The
two share no memory and no writable file, and where a jail keeps the candidate from other
processes, on a processor the reference is evaluated while the candidate loads and is called;
else while it is stopped. The parent holds the answers, the bounds and the seed, and compares raw
bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import tilefoundry
from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge import artefacts
from tilefoundry.judge.about import About, near, reference_record
from tilefoundry.judge.ahead import Ahead
from tilefoundry.judge.asked import Asked, Understood
from tilefoundry.judge.begin import VARIABLES, Begun
from tilefoundry.judge.case import EXACT_SAMPLE, Case, Exact, Judged
from tilefoundry.judge.device import require as require_device
from tilefoundry.judge.draw import Values, stream
from tilefoundry.judge.files import hold
from tilefoundry.judge.foresee import foreseen, looks_like_twin
from tilefoundry.judge.inputs import (
    Drawn,
    classes,
    coarse_inputs,
    neighbours,
    shuffled_inputs,
    touched_inputs,
)
from tilefoundry.judge.process import Child, Role
from tilefoundry.judge.report import STATED, Held, Report
from tilefoundry.judge.request import Request, judged_outputs, named_files
from tilefoundry.judge.run import Runner
from tilefoundry.judge.screen import Draw, hold_predicates, judgeable
from tilefoundry.judge.server import ENDING, Imported, Server
from tilefoundry.judge.session import Session
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.turns import Called, Turns
from tilefoundry.judge.weights import gather_weights
from tilefoundry.judge.wire import Malformed

Kind = Literal["twin", "author", "reader", "evaluator"]
"""What a process has to do with authors: it executes a twin, it executes the file of an HIR, it
reads that as data, or also evaluates it and makes kernels of it."""
SCREENED = ("ordinary", "given", "wide")
"""Sets that predicates are tried on."""
SLOW_SECONDS = 5.0
"""Where one evaluation of the reference takes longer, it is not evaluated for figures that no
verdict needs: errors against float64, and results on coarser inputs."""


def check(request: Request, begun: Begun | None = None) -> Report:
    """Carry out one check; refuses whatever keeps it from a verdict."""
    require_device(request.device)
    with begun or Begun() as begun:
        session = Check(request, begun.folder, begun.servers)
        try:
            return session.judge()
        except Malformed as broken:
            session.children[-1].died(f"it sent {broken}")
        finally:
            session.close()


class Check(Session):
    """One check under way: what it has found."""

    def __init__(
        self, request: Request, folder: Path, servers: Mapping[Imported, Server] | None = None
    ) -> None:
        super().__init__(request, folder)
        self.notes: list[str] = []
        self.reference: Runner | None = None
        self.stops = False
        self.slow = False
        """Whether the last evaluation of the reference took long."""
        self.candidate: Child
        self.libraries = request.libraries
        self.servers: dict[Imported, Server] = dict(servers or {})
        """What processes are forked from, by what is imported there."""
        self.lent = [*self.servers.values()]
        self.ahead: Ahead | None = None
        """The first case of what the candidate seems to be, under way beside it."""

    def judge(self) -> Report:
        request = self.request
        built = "model" if request.model else "kernel"
        form = "tir" if request.lowered else built if request.built else ""
        likely = looks_like_twin(request.path)
        author = self._start("reference" if likely else "candidate", "author")
        reader = self._start("reference", "reader")
        evaluator: Child | None = None
        if likely or not request.expected:  # before a twin: it is forked from less of torch
            evaluator = self._start("reference", "evaluator")
        executed = self._start("candidate", "twin") if likely else author
        self._load(executed, request.path, request.selector, form)
        given = self._read_files()
        known = self._foresee(author, reader, given) if likely else None
        if evaluator is not None:
            self._begin_evaluating(evaluator, known, author, given)
        about = hir = self._about(executed)
        self.stops = about.twin or bool(form)
        first: Case | None = None
        prepared: Runner | None = None
        made: Sequence[Called] = ()
        if about.twin:
            self.candidate = candidate = executed
            if known is None or known.hir.stands != about.stands:
                candidate.stop()
                evaluator = self._forget(evaluator)
                known = self._understand(about)
            hir = known.hir
            if self.ahead is not None and not candidate.apart:
                candidate.died("its jail is less than that of another process")
            ahead = self.ahead or Ahead()
            if self.ahead is None or request.device != "cpu":
                candidate.stop()
            if self.ahead is None:
                self._first(ahead, known, evaluator, given)
            asked = ahead.asked.result()
            if self.ahead is not None and request.device == "cpu":
                prepared, made = self._call_ahead(ahead, asked)
            first = ahead.case.result()
        else:
            evaluator = self._forget(evaluator)
            self.candidate = candidate = self._start("candidate", "evaluator")
            described = self._described(reader, hir)
            self._begin_giving(candidate, hir, form, request.device)
            asked = self._ask(Understood(hir, described), given)
        self._dismiss(author, reader)
        if form:  # a program that cannot be lowered or built is not evaluated
            candidate.finish()
        if not request.expected and self.reference is None:
            self._evaluate(evaluator, hir, asked)
        cases = [(dims, False) for dims in asked.cases]
        if about.twin and asked.files is None and not request.only and not form:
            rng = stream(self.seed, "neighbours")
            cases += [(dims, True) for dims in neighbours(rng, asked.signature, asked.cases)]
        done: list[Case] = []
        tensors: list[Held] = []
        for dims, near_by in cases:
            if near_by and not all(case.agrees for case in done):
                break
            case = first or self._case(asked, dims, near_by, given)
            first = None
            if case is None:
                continue
            candidate.go()
            if prepared is None:
                prepared = self._runner(asked)
                if self.reference is None and not self.own:  # a schedule evaluates for minutes
                    case.evaluate = self._evaluation(prepared)
            self._run(prepared, case, made)
            made = ()
            asked.weights.hold()
            tensors += self._held(dims, case.draws, asked.files)
            tensors += [Held("expected", f"output[{n}]", path, dims, case.wanted[0][n])
                        for n, path in enumerate(request.expected)]  # fmt: skip
            done.append(case)
        assert prepared is not None
        candidate.go()
        prepared.hold_weights()
        if self.stops:
            candidate.begin(*artefacts.ASKED)
        errors = [] if self.slow else done[0].errors()
        candidate.go()
        for case in done:
            case.settle()
        self._hold_sources()
        if self.reference is not None and about.twin:
            self._hold_libraries(self.reference.child)
        files: dict[str, str] = {}
        if self.stops:
            files = artefacts.told(candidate, candidate.finish(), self.sources)
        self._dismiss(*self.children)
        return self._report(about, form, asked, done, errors, tensors, files, prepared)

    @property
    def own(self) -> bool:
        """Whether the candidate is what we make of the HIR ourselves."""
        return self.request.lowered or self.request.built

    # ---- processes

    def _start(self, role: Role, kind: Kind) -> Child:
        request = self.request
        hidden = request.expected if role == "candidate" else ()
        child = Child(role, self.folder, request.seconds, request.device, VARIABLES, hidden,
                      needed=[request.path], server=self._server(kind),
                      early=kind == "evaluator")  # fmt: skip
        self.children.append(child)
        return child

    def _server(self, kind: Kind) -> Server:
        """What a process is forked from: one that has torch; one without it, which is there
        sooner; for a twin that may use no library, one without numpy."""
        imported: Imported = "torch"
        if kind in ("author", "reader"):
            imported = ""
        elif kind == "twin" and not self.request.libraries:
            imported = "torch without numpy"
        if imported not in self.servers:
            self.servers[imported] = Server(self.folder, VARIABLES, imported)
        return self.servers[imported]

    # ---- what a twin implements

    def _understand(self, about: About) -> Understood:
        """The HIR of a twin, and its description, by processes of their own."""
        author, reader = (self._start("reference", kind) for kind in ("author", "reader"))
        hir = self._hir(author, about)
        described = self._described(reader, hir)
        self._dismiss(author, reader)
        return Understood(hir, described)

    def _foresee(
        self, author: Child, reader: Child, given: Mapping[str, RawTensor]
    ) -> Understood | None:
        """The same for what the twin's text seems to implement, while torch is imported for the
        twin; inputs are drawn meanwhile. None where nothing came of it: what is wrong is told
        where the twin has said what it implements."""
        guess = foreseen(self.request.path, self.request.selector)
        if guess is None:
            return None
        try:
            self._load(author, *guess)
            hir = replace(About.read(author.finish()), file=guess[0])
            described = self._described(reader, hir)
            signature = Signature.read(described, hir.module)
            self._draw_ahead(signature, given)
        except (Refusal, Malformed):
            return None
        return Understood(hir, described) if not hir.twin else None

    def _begin_evaluating(
        self,
        evaluator: Child,
        known: Understood | None,
        author: Child,
        given: Mapping[str, RawTensor],
    ) -> None:
        """Have a process made ready to evaluate the reference, and let it evaluate beside the
        candidate if it is out of reach for who is jailed as ``author`` is, and as it will be."""
        evaluator.begin("warm", "starting torch", device=self.request.device)
        if known is not None and author.apart:
            self.stops = True
            self.ahead = Ahead()
            self.later.begin("first", self._first, self.ahead, known, evaluator, given)

    def _first(
        self,
        ahead: Ahead,
        known: Understood,
        evaluator: Child | None,
        given: Mapping[str, RawTensor],
    ) -> None:
        """Find out the first case of a twin, with what its errors need."""
        try:
            asked = self._ask(known, given)
            ahead.asked.set_result(asked)
            reference = self._evaluate(evaluator, known.hir, asked)
            case = self._case(asked, asked.cases[0], False, given, ahead)
            assert case is not None
            if not self.slow:
                case.evaluated[0] = reference.exact(case.draws[0].inputs, EXACT_SAMPLE)
                case.own = self.later.begin("own errors", case.own_errors)
            ahead.case.set_result(case)
        except BaseException as why:
            ahead.fail(why)

    def _call_ahead(self, ahead: Ahead, asked: Asked) -> tuple[Runner, Sequence[Called]]:
        """The calls of the first case, each as soon as it is known what is wanted; what is wrong
        with the reference or the predicates is refused before what is wrong with a call."""
        try:
            runner = self._runner(asked)
            return runner, self._turns.ahead(runner, ahead, asked)
        except Refusal:
            ahead.case.result()
            raise

    def _runner(self, asked: Asked) -> Runner:
        """The candidate, ready to be called."""
        return Runner(
            self.candidate, asked.signature, asked.weights, self.request.device, self.folder
        )

    def _forget(self, evaluator: Child | None) -> Child | None:
        """End what was evaluated of another HIR than the candidate's; the process that did, where
        it has not begun."""
        if self.ahead is None:
            return evaluator
        if evaluator is not None:
            evaluator.end()
        wait([self.ahead.case])
        self.ahead = self.reference = None
        self.notes.clear()
        self.slow = False
        return None

    def _ask(self, known: Understood, given: Mapping[str, RawTensor]) -> Asked:
        """What the request comes to; refuses what cannot be judged."""
        request = self.request
        signature = Signature.read(known.described, known.hir.module)
        if not self.stops and not request.expected:
            refuse("check-expected-absent", None, function=signature.name)
        judged = judged_outputs(request.outs, signature)
        for output in signature.outputs:
            hold_predicates(output.name, judged[output.name], output.dtype)
        weights = gather_weights(request.weights, signature, self.seed, self.folder)
        files = None if request.files is None else named_files(request.files, signature)
        cases = list(self._cases(signature, files, given))
        self._hold_expected(signature, len(cases))
        program = str(known.described.get("text", ""))
        return Asked(signature, program, judged, weights, files, cases)

    def _evaluate(self, evaluator: Child | None, hir: About, asked: Asked) -> Runner:
        """Give a process the HIR to evaluate."""
        evaluator = evaluator or self._start("reference", "evaluator")
        self._begin_giving(evaluator, hir, device=self.request.device)
        self.reference = Runner(
            evaluator, asked.signature, asked.weights, self.request.device, self.folder
        )
        return self.reference

    def _draw_ahead(self, signature: Signature, given: Mapping[str, RawTensor]) -> None:
        """Begin to draw what will be asked for first."""
        request = self.request
        files = None if request.files is None else named_files(request.files, signature)
        special = any(p.fn == "nan_inf" for out in request.outs for p in out.predicates)
        dims = next(iter(self._cases(signature, files, given)))
        if files is None:
            self._begin_draws(signature, dims, self._values(special, near_by=False))
        elif not request.expected:
            (first,) = self._draws(signature, dims, files, given, ())
            for what, made in (("shuffled", shuffled_inputs), ("touched", touched_inputs)):
                self.later.begin(self._key(what, dims), made, self.seed, first.inputs)

    def _dismiss(self, *children: Child) -> None:
        """End processes that have told what they were for."""
        for child in children:
            child.end()

    def close(self) -> None:
        self._dismiss(*self.children)
        for server in self.servers.values():
            server.abandon()
        if self.ahead is not None:  # it uses a process that ends here
            wait([self.ahead.case], ENDING)
        super().close()
        for server in self.servers.values():
            if server not in self.lent:
                server.close()

    def _evaluation(self, runner: Runner) -> Any:
        """How a case has its inputs evaluated in float64, while the candidate is stopped."""

        def evaluate(inputs: Mapping[str, RawTensor], most: int) -> Exact:
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
        asked: Asked,
        dims: Mapping[str, int],
        near_by: bool,
        given: Mapping[str, RawTensor],
        ahead: Ahead | None = None,
    ) -> Case | None:
        """The inputs of one set of extents and what is wanted on each, which ``ahead`` learns as
        it comes; None for a neighbour that the reference does not cover."""
        signature, judged, files = asked.signature, asked.judged, asked.files
        special = any(p.fn == "nan_inf" for fns in judged.values() for p in fns)
        values = self._values(special, near_by)
        draws = self._draws(signature, dims, files, given, values)
        kept: list[Drawn] = []
        wanted: list[Sequence[RawTensor]] = []
        if self.request.expected:
            kept, wanted = draws, [self._expected(signature, dims, given)]
            draws = []
        if files is not None and self.reference is not None:
            first = (kept or draws)[0].inputs
            key = self._key("shuffled", dims)
            held_out = self.later.take(key, shuffled_inputs, self.seed, first)
            draws = [*draws, *([held_out] if held_out is not None else [])]
        if self.stops and not near_by and draws and not self.own:
            key = self._key("touched", dims)
            touched = self.later.take(key, touched_inputs, self.seed, draws[0].inputs)
            draws[1:1] = [touched] if touched is not None else []
        count, before = len(kept) + len(draws), len(kept)
        if ahead is not None:
            ahead.draws.set_result([*kept, *draws])
            for n, wants in enumerate(wanted):
                ahead.wanted(n).set_result(wants)
        # predicates are tried while sets that they are not tried on are evaluated
        screened: Future[dict[str, list[str]]] | None = None
        if kept and not near_by:
            screened = self._begin_screening(judged, kept, dict(enumerate(wanted)))
        order = sorted(range(len(draws)), key=lambda n: draws[n].values not in SCREENED)
        found: dict[int, Sequence[RawTensor]] = {}
        for n, at in enumerate(order):
            wants = self._wanted(draws[at], dims, near_by, judged)
            if wants is not None:
                found[at] = wants
            if ahead is not None:
                ahead.wanted(before + at).set_result(wants)
            rest = [draws[m].values for m in order[n + 1 :]]
            if not near_by and screened is None and found and not {*rest} & {*SCREENED}:
                screened = self._begin_screening(judged, draws, found)
        kept += [draws[at] for at in sorted(found)]
        wanted += [found[at] for at in sorted(found)]
        if not kept:
            return None
        evaluate = self._evaluation(self.reference) if self.reference else _nobody
        notes = {} if screened is None else screened.result()
        places = [*range(before), *(before + at for at in sorted(found))]
        return Case(dims, judged, kept, wanted, evaluate, near_by, notes, count, places)

    def _values(self, special: bool, near_by: bool) -> tuple[Values, ...]:
        """The classes of values that are drawn."""
        values: tuple[Values, ...] = ("ordinary",) if near_by else classes(special)
        if self.request.lowered:  # interpreted, under several orders each
            return values[:1]
        # a kernel keeps nothing, and a scheduled HIR takes long to evaluate
        return values[:2] if self.request.built else values

    def _begin_screening(
        self, judged: Judged, draws: Sequence[Drawn], wanted: Mapping[int, Sequence[RawTensor]]
    ) -> Future[dict[str, list[str]]]:
        to_screen = self._to_screen(judged, draws, wanted)
        return self.later.begin(object(), self._screen, judged, to_screen)

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
            late = refusal.diags[0].code == "check-timeout"
            if not near_by and (draw.strict or late):  # what nobody had time to try is no pass
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

    def _to_screen(
        self, judged: Judged, draws: Sequence[Drawn], wanted: Mapping[int, Sequence[RawTensor]]
    ) -> dict[str, list[Draw]]:
        """What predicates are tried on: the sets that bounds were stated for, and the next."""
        first = min(wanted)
        wide = next((n for n in wanted if draws[n].values == "wide"), None)
        others: dict[int, dict[str, Sequence[RawTensor]]] = {first: {}}
        if wide is not None:
            others[first]["the result on other inputs"] = wanted[wide]
            others.setdefault(wide, {})["the result on other inputs"] = wanted[first]
        coarse = coarse_inputs(draws[first].inputs)
        if self.slow or self.request.expected:
            coarse = None
        if coarse is not None and self.reference is not None:
            name = "the result on inputs rounded to the 8 bits of bf16 (f64: to f32)"
            others[first][name] = self.reference.run(coarse, ())
        return {
            name: [
                Draw(wanted[at][n], draws[at].inputs, {k: v[n] for k, v in made.items()})
                for at, made in others.items()
            ]
            for n, name in enumerate(judged)
        }

    @property
    def _turns(self) -> Turns:
        """The calls that are made of a case."""
        once = self.request.lowered or not self.stops
        return Turns(self.seed, self.later, once, self.request.views)

    def _run(self, candidate: Runner, case: Case, made: Sequence[Called] = ()) -> None:
        """Call the candidate and judge each call; those that were ``made`` already are judged."""
        self._turns.run(candidate, case, made)
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
        asked: Asked,
        done: Sequence[Case],
        errors: Sequence[Any],
        tensors: Sequence[Held],
        files: Mapping[str, str],
        prepared: Runner,
    ) -> Report:
        request = self.request
        stated = {name: [str(p) for p in predicates] for name, predicates in asked.judged.items()}
        known = all(draw.values == "given" for case in done for draw in case.draws)
        if known and self.stops:
            self.notes.append("all inputs and expected values were known before the candidate ran")
        if self.seed_stated:
            self.notes.append(STATED)
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
            self.seed_stated,
            {near(path): digest for path, digest in self.sources.items()},
            asked.program,
            files,
            self.candidate.isolation or {},
            prepared.manners.record(),
            "allowed" if request.libraries else "refused",
            reference_record(request, about, bool(request.expected and self.reference),
                             asked.program),
            hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(),
            asked.weights.record(),
            tensors,
            [row for case in done for row in case.rows()],
            [turn for case in done for turn in case.turns],
            errors,
            all(repeats) if repeats else None,
            self.notes,
        )  # fmt: skip


def _nobody(inputs: Mapping[str, RawTensor], most: int) -> Exact:
    return [], "the reference is not evaluated"
