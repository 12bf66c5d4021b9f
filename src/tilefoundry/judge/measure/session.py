"""``measure``: how long a computation takes. The parent's side, from request to report.

Candidate and rival run in several processes each, verified before they are timed and by the
results of timed calls, in interleaved rounds, one process at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tilefoundry
from tilefoundry.build import host
from tilefoundry.diag import Refusal, refuse
from tilefoundry.judge import artefacts
from tilefoundry.judge.about import About, near
from tilefoundry.judge.begin import FIRST, Begun, measured
from tilefoundry.judge.device import require as require_device
from tilefoundry.judge.foresee import looks_like_twin
from tilefoundry.judge.inputs import Drawn
from tilefoundry.judge.measure.checked import Checked
from tilefoundry.judge.measure.clock import Doubt, hold, megahertz
from tilefoundry.judge.measure.device import DevicePlayer
from tilefoundry.judge.measure.early import Early, Predicates
from tilefoundry.judge.measure.evict import Evictor
from tilefoundry.judge.measure.floor import DATA, Floor
from tilefoundry.judge.measure.fresh import Fresh
from tilefoundry.judge.measure.libraries import kernels, unset
from tilefoundry.judge.measure.player import Player, rounds
from tilefoundry.judge.measure.report import Report, side_of
from tilefoundry.judge.measure.request import Request
from tilefoundry.judge.measure.statistics import ratios
from tilefoundry.judge.predicates import compare
from tilefoundry.judge.process import Child, Role
from tilefoundry.judge.run import Runner
from tilefoundry.judge.screen import Draw
from tilefoundry.judge.server import KEPT, Imported, Server
from tilefoundry.judge.signature import Signature
from tilefoundry.judge.stated import Predicate
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.weights import Weights, gather_weights
from tilefoundry.judge.wire import Malformed

RANDOM_DRAWS = 2
"""Sets of random inputs that must be right before anything is timed."""
JUDGED_SECONDS, JUDGED_BYTES = 10.0, 2 << 30
"""What judging timed calls of a process may take, beside two results of each side."""


def measure(request: Request, begun: Begun | None = None) -> Report:
    """Carry out one measurement; refuses whatever would make its figures worthless."""
    require_device(request.device)
    cpus = processors(request.threads) if request.device == "cpu" else []
    with begun or Begun(measured(request.threads), FIRST) as begun:
        session = Session(request, begun.folder, cpus, begun.servers)
        try:
            return session.measure()
        except Malformed as broken:
            session.children[-1].died(f"it sent {broken}")
        finally:
            session.close()


def processors(threads: int) -> list[int]:
    """The processors that measured processes keep to; refuses more threads than there are."""
    there = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    count = len(there) or os.cpu_count() or 1
    if threads > count:
        refuse("measure-threads", None, threads=threads, count=count)
    return there[:threads]


class Session(Early):
    """One measurement under way."""

    def __init__(
        self,
        request: Request,
        folder: Path,
        cpus: Sequence[int],
        servers: Mapping[Imported, Server] | None = None,
    ) -> None:
        """Processes are forked from ``servers``, by what is imported there once for all."""
        super().__init__(request.check(), folder)
        self.servers = servers or {}
        self.asked = request
        self.cpus = cpus
        self.process = 0
        self.wanted: list[list[RawTensor]] = []
        self.expression = ""
        self.hir: About
        self.held_to: dict[str, str] = {}
        self.worst: dict[tuple[str, str, str], tuple[float, Predicate]] = {}
        self.picks = secrets.SystemRandom()
        self.artefacts: dict[str, str] = {}
        """Hashes of what the candidate executes of its own: the same in all its processes."""
        self.checked: dict[str, str] = {}
        self.share = 0
        """Bytes of a device that each process may fill with inputs and results."""
        self.doubts: list[list[Doubt]] = []
        """Of each time that both sides' processes were left out and started anew: why."""
        self.devices: list[dict[str, str]] = []
        for stated in (request.against, request.reference):
            if stated is not None and not stated.library:
                self._note(stated.path)
        self.evict = Evictor(cpus) if self.asked.device == "cpu" else lambda: None

    def measure(self) -> Report:
        asked = self.asked
        self._folder()
        early = None
        if asked.device != "cpu":  # where processors are not what is measured
            early = self._start("reference")
            early.begin("warm", "starting torch")
        given = self._read_files()
        form = "" if asked.evaluated else "timed"
        checked = None if asked.checked is None else Checked.read(asked.checked)
        plan = self._plan(given)
        if plan is not None and checked is not None:
            twin = looks_like_twin(asked.path)
            name = checked.function if twin else f"{plan.known.hir.name}.{plan.known.hir.func}"
            checked.about(name, "twin" if twin else "hir" if asked.evaluated else "kernel")
        first, about = self._opened_player("candidate", asked.path, asked.selector, form, early)
        first.child.stop()
        if plan is None or plan.known.hir.stands != about.stands:
            self.hir = about
            if about.twin:
                author = self._start("reference")
                self.hir = self._hir(author, about)
                author.close()
            plan = self._planned(self.hir, given)
        self.hir = plan.known.hir
        reference = early or self._start("reference")
        reference.go()
        self._give(reference, self.hir)
        signature, judged, dims, files = plan.signature, plan.judged, plan.dims, plan.files
        weights = gather_weights(asked.weights, signature, self.seed, self.folder)
        drawn = self._draws(signature, dims, files, given, ("ordinary",) * RANDOM_DRAWS)
        draws = [draw.inputs for draw in drawn]
        threads = asked.threads if asked.device == "cpu" else 0  # a device's own, all of them
        told = reference.ask("floors", "counting its operations", dims=dims, target=asked.target,
                             threads=threads)  # fmt: skip
        floors = _floors(told)
        known = self._reference(reference, about, signature, weights, dims)
        for inputs in draws:
            began = time.monotonic()
            self.wanted.append(known.run(inputs, ()))
            self.known_seconds = time.monotonic() - began
        to_screen = {
            name: [Draw(w[n], d) for w, d in zip(self.wanted, draws, strict=True)]
            for n, name in enumerate(judged)
        }
        self._screen(judged, to_screen)
        for child in self.children:
            child.stop()
        ours = self._ours(signature, draws)

        clocks = [megahertz(self.cpus)]
        self._ask_device()
        every: list[list[Player]] = []
        said: dict[str, Any] = {}
        number = 0
        while len(every) < asked.processes:
            self._folder()
            candidate = first
            if number:
                candidate, _ = self._opened_player("candidate", asked.path, asked.selector, form)
            else:
                candidate.child.go()
            players = [candidate]
            self._ready(candidate, signature, weights, dims, judged, draws)
            if asked.against is not None:
                rival = self._rival(signature, weights, dims, judged, draws)
                players.append(rival)
            self._time(players, number, draws, ours)
            self._verify(players, known, dims, judged)
            self._hold_artefacts(candidate, not about.twin and not asked.evaluated)
            if number == 0:
                self._hold_checked(about, checked)
                said = self._libraries(players)
            for player in players:
                assert player.runner is not None
                player.runner.hold_weights()
                player.child.close()
            doubts = [d for player in players for d in player.doubts(asked.threads)]
            if not doubts:
                every.append(players)
            else:
                self.doubts.append(doubts)
                hold(self.doubts, len(every))
            number += 1
        clocks.append(megahertz(self.cpus))
        self._ask_device()
        return self._report(about, signature, dims, weights, floors, every, clocks, said, drawn,
                            files, judged)  # fmt: skip

    # ---- processes

    def _folder(self) -> None:
        self.process += 1
        (self.folder / str(self.process)).mkdir()

    @property
    def _place(self) -> Path:
        return self.folder / str(self.process)

    def _start(self, role: Role, imported: Imported = "torch") -> Child:
        child = Child(role, self.folder, self.asked.seconds, self.asked.device,
                      needed=[self.asked.path], server=self.servers.get(imported))  # fmt: skip
        self.children.append(child)
        return child

    def _player(self, role: Role, beside: Child | None = None) -> Player:
        """A side's process; all others but ``beside`` stand still meanwhile."""
        for child in self.children:
            if child.alive and child is not beside:
                child.stop()
        threads, device = self.asked.threads, self.asked.device
        if device != "cpu":
            return DevicePlayer(role, self._start(role), threads, device)
        return Player(role, self._start(role), self.cpus, threads)

    def _ours(self, signature: Signature, draws: Sequence[Mapping[str, RawTensor]]) -> Player:
        """The player of a program of ours, in a process that no author's code is in: it tells
        what batches take where nothing is hidden."""
        player = self._player("reference")
        forms = [[t.dtype.name, list(t.shape)] for t in self.wanted[0]]
        player.child.ask("stand_in", "making a program of ours", outputs=forms)
        self._folder()
        self._prepare(player, signature, Weights(), draws)
        player.child.stop()
        return player

    def _prepare(
        self,
        player: Player,
        signature: Signature,
        weights: Weights,
        draws: Sequence[Mapping[str, RawTensor]],
    ) -> Runner:
        """Weights taken; what the inputs of timed calls are."""
        fresh = Fresh(draws, [self.picks.getrandbits(63)], self.asked.files is None)
        results = sum(tensor.nbytes for tensor in self.wanted[0])
        return player.prepare(signature, weights, self.asked.device, self._place, fresh, results)

    def _opened_player(
        self, role: Role, path: str, selector: str | None, form: str, beside: Child | None = None
    ) -> tuple[Player, About]:
        """A side's process that holds its program, and what that is."""
        made: list[Player] = []

        def start() -> Child:
            made.append(self._player(role, beside))
            return made[-1].child

        about = self._opened(start, path, selector, form)
        return made[-1], about

    def _ready(
        self,
        player: Player,
        signature: Signature,
        weights: Weights,
        dims: Mapping[str, int],
        judged: Predicates,
        draws: Sequence[Mapping[str, RawTensor]],
    ) -> None:
        """Weights taken and every draw's results right, before anything is timed."""
        runner = self._prepare(player, signature, weights, draws)
        for n, inputs in enumerate(draws):
            want = self.wanted[n]
            got = runner.run(inputs, [w.nbytes for w in want])
            self._hold(player, runner, got, want, dims, judged, "before it is timed")

    def _reference(
        self,
        evaluator: Child,
        about: About,
        signature: Signature,
        weights: Weights,
        dims: Mapping[str, int],
    ) -> Runner:
        """The process whose results are right: the HIR's evaluator, or what was stated."""
        stated, child = self.asked.reference, evaluator
        if stated is not None and stated.library:
            asked = {"library": stated.library, "dims": dims}
            expression = stated.text
            if not expression:
                answer = child.ask("rival", "looking for a reference", expression="", **asked)
                expression = next(iter(answer.get("expressions", ())), "")
            if not expression:
                refuse("measure-rival-unknown", None, library=stated.library,
                       function=signature.name)  # fmt: skip
            child.ask("rival", "making the reference", expression=str(expression), **asked)
            self.held_to = {"kind": stated.library, "says": str(expression)}
        elif stated is not None:
            evaluator.stop()
            self._folder()
            made: list[Child] = []

            def start() -> Child:
                made.append(self._start("reference"))
                return made[-1]

            self._opened(start, stated.path, stated.selector)
            child = made[-1]
            self.held_to = {"kind": "source", "source": stated.text}
        else:
            self.held_to = {
                "kind": "hir",
                "module": f"{near(about.file)}:{about.module}",
                "against_published_model": "unverified",
            }
        return Runner(child, signature, weights, self.asked.device, self._place)

    def _rival(
        self,
        signature: Signature,
        weights: Weights,
        dims: Mapping[str, int],
        judged: Predicates,
        draws: Sequence[Mapping[str, RawTensor]],
    ) -> Player:
        """The rival's process, with the first of its expressions whose results are right."""
        against = self.asked.against
        assert against is not None
        if not against.library:
            player, _ = self._opened_player("rival", against.path, against.selector, "timed")
            self._ready(player, signature, weights, dims, judged, draws)
            self.expression = against.text
            return player
        tried: list[Refusal] = []
        named = [self.expression or against.text]
        while named:
            player = self._player("rival")
            self._give(player.child, self.hir)
            asked = {"library": against.library, "dims": dims}
            if not named[0]:
                answer = player.child.ask("rival", "looking for a rival", expression="", **asked)
                named = [str(x) for x in answer.get("expressions", ())]
                if not named:
                    refuse("measure-rival-unknown", None, library=against.library,
                           function=signature.name)  # fmt: skip
            player.child.ask("rival", "making the rival", expression=named[0], **asked)
            try:
                self._ready(player, signature, weights, dims, judged, draws)
            except Refusal as refusal:
                tried.append(refusal)
                player.child.close()
                self._folder()
                named.pop(0)
                continue
            self.expression = named[0]
            return player
        raise tried[0]

    def _time(
        self,
        players: Sequence[Player],
        number: int,
        draws: Sequence[Mapping[str, RawTensor]],
        ours: Player,
    ) -> None:
        for player in players:
            player.child.stop()
        written = {name for p in players if p.runner for name in p.runner.manners.in_place}
        if number == 0:
            ours.child.go()
            self.share = ours.share(len(players) + 1)
            ours.stage(draws[0], written, self.share)
            ours.child.stop()
        for player in players:
            player.child.go()
            player.stage(draws[0], written, self.share)
            player.warm_up()
            player.child.stop()
            player.rehearse(ours, self.evict)
        order = list(players) if number % 2 == 0 else list(players)[::-1]
        rounds(order, ours, self.asked.runs, self.evict, self._judged_rounds(draws[0]))

    def _judged_rounds(self, inputs: Mapping[str, RawTensor]) -> set[int]:
        """The rounds whose results are held to the reference: the last and others at random, as
        many as its time and our memory allow."""
        runs = self.asked.runs
        held = sum(t.nbytes for t in (*inputs.values(), *self.wanted[0]))
        fits = min(JUDGED_SECONDS / max(self.known_seconds, 1e-9), JUDGED_BYTES / max(held, 1))
        others = min(runs, max(1, int(fits / 2)))
        return {runs - 1, *self.picks.sample(range(runs), others)}

    # ---- verification

    def _hold(
        self,
        player: Player,
        runner: Runner,
        got: Sequence[RawTensor],
        want: Sequence[RawTensor],
        dims: Mapping[str, int],
        judged: Predicates,
        when: str,
    ) -> None:
        """Refuse results that do not meet the predicates."""
        runner.hold_outputs(got, dims)
        for n, (name, predicates) in enumerate(judged.items()):
            for finding in compare(predicates, got[n], want[n]):
                key = (player.who, name, finding.predicate.fn)
                old = self.worst.get(key)
                low = finding.predicate.fn == "cosine"
                if old is None or (finding.value < old[0] if low else finding.value > old[0]):
                    self.worst[key] = (finding.value, finding.predicate)
                if not finding.passed:
                    code = "measure-wrong" if player.who == "candidate" else "measure-rival-wrong"
                    refuse(code, None, who=f"the {player.who}", when=when, output=name,
                           predicate=str(finding.predicate), value=f"{finding.value:.6g}",
                           differ=finding.differ, count=finding.count)  # fmt: skip

    def _verify(
        self,
        players: Sequence[Player],
        known: Runner,
        dims: Mapping[str, int],
        judged: Predicates,
    ) -> None:
        """The results that timed calls left, against the reference on the same inputs."""
        for player in players:
            player.child.stop()
        known.child.go()
        for player in players:
            for inputs, got in player.snapshots:
                want = known.run(inputs, ())
                assert player.runner is not None
                self._hold(player, player.runner, got, want, dims, judged, "in a timed call")
        known.child.stop()
        for player in players:
            player.child.go()

    def _hold_artefacts(self, candidate: Player, kernel: bool) -> None:
        """Refuse a candidate that executes something else in this process than in the first.

        A twin compiles for each process, and compilers may write another file each time: where
        names differ nothing is held, since the sources are.
        """
        found = artefacts.executed(candidate.child, self.sources)
        known = self.artefacts
        if kernel and known and found != known:
            names = sorted(n for n in {*found, *known} if found.get(n) != known.get(n))
            refuse("measure-artefact", None, names=" ".join(names))
        self.artefacts = known or found

    def _form(self, about: About) -> str:
        """What the candidate is: a ``twin``, an HIR's ``kernel``, or the ``hir`` evaluated."""
        return "twin" if about.twin else "hir" if self.asked.evaluated else "kernel"

    def _hold_checked(self, about: About, checked: Checked | None) -> None:
        """Refuse a candidate that is not what the report says that was given for its check."""
        if checked is not None:
            checked.about(f"{about.name}.{about.func}", self._form(about))
            sources = {near(path): digest for path, digest in self.sources.items()}
            self.checked = checked.hold(sources, self.artefacts)

    def _ask_device(self) -> None:
        """What the device says of itself now: clocks, temperature, driver."""
        if self.asked.device != "cpu":
            family, _, ordinal = self.asked.device.partition(":")
            self.devices.append(host(family, "state").state(int(ordinal or 0)))

    # ---- the answer

    def _libraries(self, players: Sequence[Player]) -> dict[str, Any]:
        """What each side's libraries say, and the kernels that they name."""
        found: dict[str, Any] = {}
        for player in players:
            answer = player.child.ask("versions", "asking its libraries")
            told = answer.get("libraries")
            record = {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}
            if player.who == "rival" or self.asked.evaluated:
                player.child.ask("witness", "naming its kernels")
                if named := kernels(player.child.words("stdout")):
                    record["kernels"] = "; ".join(named)
            found[player.who] = record
        return found

    def _report(
        self,
        about: About,
        signature: Signature,
        dims: Mapping[str, int],
        weights: Weights,
        limits: tuple[str, Mapping[str, Floor]],
        every: Sequence[Sequence[Player]],
        clocks: Sequence[tuple[list[float], str]],
        said: Mapping[str, Any],
        drawn: Sequence[Drawn],
        files: Mapping[str, str] | None,
        judged: Predicates,
    ) -> Report:
        asked = self.asked
        sides = [side_of([players[n] for players in every]) for n in range(len(every[0]))]
        target, floors = limits
        for side in sides:
            for data, limit in floors.items():
                limit.hold(f"the {side.who}", data, side.data[data].median)
        versus: dict[str, Any] = {}
        if len(sides) == 2:
            ours, theirs = sides
            versus = {data: ratios(theirs.figures[data], ours.figures[data]) for data in floors}
        held = self._held(dims, drawn, files)
        self._hold_sources()
        stated = {name: [str(p) for p in predicates] for name, predicates in judged.items()}
        return Report(
            request=asked.record(),
            predicates=hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(),
            versions={
                "tilefoundry": tilefoundry.__version__,
                "torch": version("torch"),
                "numpy": version("numpy"),
                "python": platform.python_version(),
            },
            checked=self.checked,
            source=self.request.source,
            function=f"{about.name}.{about.func}",
            candidate=self._form(about),
            against="" if asked.against is None else self._against(),
            device=asked.device,
            threads=asked.threads,
            processes=asked.processes,
            runs=asked.runs,
            seed=self.seed,
            seed_stated=self.seed_stated,
            torch=version("torch"),
            sources={near(path): digest for path, digest in self.sources.items()},
            artefacts=self.artefacts,
            isolation={
                side.who: players[0].child.isolation or {}
                for side, players in zip(sides, zip(*every, strict=True), strict=True)
            },
            devices=self.devices,
            reference=self.held_to,
            weights=weights.record(),
            tensors=held,
            worst={k: (v, str(p)) for k, (v, p) in self.worst.items()},
            draws=RANDOM_DRAWS if files is None else 1,
            unset=[name for name in unset() if name not in KEPT],
            libraries=said,
            clocks=clocks,
            again=[str(doubts[0]) for doubts in self.doubts],
            sides=sides,
            ratio=versus,
            floors=floors,
            target=target,
        )

    def _against(self) -> str:
        against = self.asked.against
        assert against is not None
        return f"{against.library}: {self.expression}" if against.library else against.text


def _floors(told: Mapping[str, Any]) -> tuple[str, dict[str, Floor]]:
    """Whose facts, and the floors on cold and warm data."""
    try:
        return str(told["target"]), {data: Floor.read(told["floors"][data]) for data in DATA}
    except (KeyError, TypeError):
        raise Malformed("floors of no known form") from None
