"""What a kernel executes, statement by statement: the plain reading of a TIR program.

Used to tell which faults change something. It knows loops, tests and participants, and
nothing of clocks, phases in flight or conflicts: it is no part of the verifier.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from tilefoundry.ir.expr import Expr, evaluate, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Advance, For, Issue, Sync, View, When, With


@dataclass(frozen=True)
class Event:
    """One execution of a statement in one block; ``env`` as it was then."""

    stmt: object
    env: dict
    at: int

    def value(self, x):
        return evaluate(x, Values(self.env)) if isinstance(x, Expr) else x

    @cached_property
    def slot(self):
        return self.value(self.stmt.slot)


class Values(dict):
    """Symbols without a value are coordinates of the first participant."""

    def __missing__(self, key):
        return 0


class Trace:
    """All events of all blocks, in program order, with the participants of statements."""

    def __init__(self, func):
        self.func = func
        self.threads = next((t.size for t in func.topologies if t.level == "thread"), 1)
        # lanes go in step: each statement is one event of their core
        self.inner = ("thread", func.target.levels[-1])
        outer = [t for t in func.topologies if t.level not in self.inner]
        self.members = {}
        self.order = {}
        self._participants(func.body, tuple(range(self.threads)))
        self.blocks = []
        for at in product(*(range(t.size) for t in outer)):
            block = {t.level: n for t, n in zip(outer, at, strict=True)}
            events = []
            self._run(func.body, block, self._coordinates(block), events)
            self.blocks.append(events)
        self.executed = {e.stmt for events in self.blocks for e in events}

    def _participants(self, body, here):
        for stmt in body:
            self.members[stmt] = frozenset(here)
            self.order[stmt] = here
            if isinstance(stmt, With):
                axes = stmt.mesh.at("thread")
                self._participants(stmt.body, tuple(stmt.mesh.units("thread")) if axes else here)
            elif isinstance(stmt, (For, When)):
                self._participants(stmt.body, here)

    def _coordinates(self, block):
        env = {}
        for x in _expressions(self.func.body):
            for s in symbols(x):
                if isinstance(s, Coord) and s.axis.level not in self.inner:
                    a = s.axis
                    env[s] = (block.get(a.level, 0) - a.offset) // a.stride % a.extent
        return env

    def _run(self, body, block, env, events):
        for stmt in body:
            if isinstance(stmt, With):
                outer = [x for x in stmt.mesh.levels if x not in self.inner]
                if all(block.get(x, 0) in stmt.mesh.units(x) for x in outer):
                    self._run(stmt.body, block, env, events)
            elif isinstance(stmt, For):
                start, stop, step = (
                    evaluate(x, Values(env)) for x in (stmt.start, stmt.stop, stmt.step)
                )
                for value in range(start, stop, step):
                    env[stmt.var] = value
                    self._run(stmt.body, block, env, events)
            elif isinstance(stmt, When):
                if evaluate(stmt.test, Values(env)) > 0:
                    self._run(stmt.body, block, env, events)
            elif isinstance(stmt, Advance):
                env[stmt.counter] = env.get(stmt.counter, 0) + evaluate(stmt.by, Values(env))
            else:
                events.append(Event(stmt, dict(env), len(events)))

    # ---- questions about barriers

    @cached_property
    def needed(self):
        """Per block, barrier and slot: how many phases somebody waits for.

        The k-th wait of a statement's participants whose first parity is p asks for phase
        k - p: on a fresh barrier the preceding phase counts as complete.
        """
        out = []
        for events in self.blocks:
            need = defaultdict(int)
            seen = defaultdict(int)
            first = {}
            for e in events:
                if isinstance(e.stmt, Sync) and e.stmt.kind == "wait":
                    place = (e.stmt.barrier, e.slot)
                    key = (*place, self.order[e.stmt])
                    first.setdefault(key, e.value(e.stmt.parity))
                    need[place] = max(need[place], seen[key] - first[key] + 1)
                    seen[key] += 1
            out.append(need)
        return out

    def waited(self, stmt):
        """Some wait blocks until phases of the statement's barrier complete."""
        return any(n > 0 for need in self.needed for (b, _), n in need.items()
                   if b is stmt.barrier)  # fmt: skip

    @cached_property
    def needed_arrivals(self):
        """Statement → executions (block, position) whose arrival somebody waits for: the k-th
        arrival of one set of threads on a slot is its share of phase k."""
        out = defaultdict(set)
        for n, events in enumerate(self.blocks):
            seen = defaultdict(int)
            for e in events:
                if isinstance(e.stmt, Sync) and e.stmt.kind in ("arrive", "async_arrive", "expect"):
                    key = (e.stmt.barrier, e.slot, self.order[e.stmt])
                    if seen[key] < self.needed[n][e.stmt.barrier, e.slot]:
                        out[e.stmt].add((n, e.at))
                    seen[key] += 1
        return out

    def blocking(self, stmt):
        """A wait that at least once asks for more than a fresh barrier grants."""
        for events in self.blocks:
            seen, first = defaultdict(int), {}
            for e in events:
                if e.stmt is stmt:
                    first.setdefault(e.slot, e.value(stmt.parity))
                    if seen[e.slot] - first[e.slot] >= 0:
                        return True
                    seen[e.slot] += 1
        return False

    @cached_property
    def links(self):
        """Per block: arrivals and waits as (position, (barrier, slot), phase, participants)."""
        out = []
        for events in self.blocks:
            arrivals, waits = [], []
            seen, first = defaultdict(int), {}
            for e in events:
                if not isinstance(e.stmt, Sync) or e.stmt.barrier is None:
                    continue
                place, who = (e.stmt.barrier, e.slot), self.members[e.stmt]
                key = (place, e.stmt.kind == "wait", self.order[e.stmt])
                if e.stmt.kind == "wait":
                    first.setdefault(key, e.value(e.stmt.parity))
                    waits.append((e.at, place, seen[key] - first[key], who))
                elif e.stmt.kind != "init":
                    arrivals.append((e.at, place, seen[key], who))
                seen[key] += 1
            out.append((arrivals, waits))
        return out

    def ordered(self, block, who, at, whom, until, without):
        """What ``who`` have done by position ``at`` is before what ``whom`` do at ``until``,
        through arrivals and the waits for their phases, by others than ``without``."""
        arrivals, waits = self.links[block]
        events = self.blocks[block]
        reached = [(who, at)]
        known = set()
        while reached:
            threads, since = reached.pop()
            if threads & whom and since <= until and (threads is not who or threads >= whom):
                return True
            for a, place, phase, mine in arrivals:
                if a < since or not mine & threads or events[a].stmt is without:
                    continue
                for w, there, wanted, theirs in waits:
                    if there != place or wanted < phase or events[w].stmt is without:
                        continue
                    if (w, theirs) not in known:
                        known.add((w, theirs))
                        reached.append((theirs, w))
        return False

    def uses(self, block, stmt):
        """(position of an arrival that is waited for, participants of the wait, position of
        their next instruction after it)."""
        arrivals, waits = self.links[block]
        events = self.blocks[block]
        for a, place, phase, _ in arrivals:
            if events[a].stmt is not stmt:
                continue
            for w, there, wanted, theirs in waits:
                if there == place and wanted == phase:
                    after = (e.at for e in events[w:]
                             if isinstance(e.stmt, Issue)
                             and self.members[e.stmt] & theirs)  # fmt: skip
                    yield a, theirs, next(after, len(events))

    # ---- questions about accesses

    def reads(self, e):
        """(buffer, slot) in shared or device memory that an event reads."""
        return [(v.buffer, e.value(v.slot)) for v in e.stmt.reads
                if isinstance(v, View) and v.storage != "rmem"]  # fmt: skip

    def writes(self, e):
        return [(v.buffer, e.value(v.slot)) for v in e.stmt.writes if v.storage != "rmem"]

    def plain(self, stmt):
        return isinstance(stmt, Issue) and effects(stmt).proxy == "generic"

    def meet(self, a, b):
        """The statements share participants."""
        return bool(self.members[a] & self.members[b])


def _expressions(body):
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            if isinstance(stmt, For):
                yield from (stmt.start, stmt.stop, stmt.step)
            if isinstance(stmt, When):
                yield stmt.test
            yield from _expressions(stmt.body)
        elif isinstance(stmt, Sync):
            yield from (stmt.slot, stmt.parity)
        elif isinstance(stmt, Issue):
            yield stmt.attrs.get("slot", 0)
            for v in (*stmt.reads, *stmt.writes):
                if isinstance(v, View):
                    yield v.slot
                    yield from v.index
        elif isinstance(stmt, Advance):
            yield stmt.by
