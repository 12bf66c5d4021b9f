"""Who touched which memory, and whether two touches are ordered.

Exact and independent of the data: accesses of one slot are kept as records until a later,
ordered write covers them; a new access is held against those that it overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilefoundry.interpret.clock import Clock
from tilefoundry.interpret.place import Places, distinct
from tilefoundry.interpret.report import Access, Report, Reports, describe, ranges
from tilefoundry.tir.program import Buffer, Issue


@dataclass(eq=False)
class Reach:
    """Elements of one slot that an access touches, and by which threads of the CTA:
    one each, or one thread (or engine) for all."""

    buffer: Buffer
    element: Any
    thread: Any
    spots: dict[Any, Any] = field(default_factory=lambda: dict[Any, Any]())
    """Index tensors into storage, by slot."""

    @cached_property
    def elements(self) -> Any:
        """Distinct elements, ascending."""
        return distinct(self.element)

    @cached_property
    def threads(self) -> Any:
        return distinct(self.thread)

    @cached_property
    def box(self) -> tuple[Any, Any]:
        """Smallest and largest coordinates."""
        shape = self.buffer.shape or (1,)
        coords = np.unravel_index(self.elements, shape)
        return np.array([c.min() for c in coords]), np.array([c.max() for c in coords])

    @cached_property
    def pairs(self) -> tuple[Any, Any]:
        """Distinct (element, thread), by element."""
        width = int(self.threads[-1]) + 1
        code = distinct(self.element * width + self.thread)
        return code // width, code % width

    def bytes(self, places: Places, slot: int) -> Any:
        """Distinct byte addresses, ascending."""
        wide = self.buffer.dtype.bits // 8
        at = places.address(self.buffer)[self.elements] + self.buffer.offsets[slot]
        return distinct((at[:, None] + np.arange(wide)).ravel())


def apart(a: Reach, b: Reach) -> bool:
    """The boxes around two reaches of one buffer do not meet."""
    (alo, ahi), (blo, bhi) = a.box, b.box
    return bool(np.any(ahi < blo) or np.any(bhi < alo))


def meeting(a: Reach, b: Reach) -> tuple[Any, Any] | None:
    """Pairs of threads (of a, of b) that touch one element, None if none do."""
    if not len(a.element) or not len(b.element) or apart(a, b):
        return None
    ae, at = a.pairs
    be, bt = b.pairs
    left, right = np.searchsorted(be, ae, "left"), np.searchsorted(be, ae, "right")
    counts = right - left
    if not counts.any():
        return None
    start = np.repeat(left, counts)
    inside = np.arange(len(start)) - np.repeat(np.cumsum(counts) - counts, counts)
    code = distinct(np.repeat(at, counts) * (1 << 20) + bt[start + inside])
    return code >> 20, code & ((1 << 20) - 1)


@dataclass(eq=False)
class Record:
    """One access: by threads (``epoch``) or by an engine (``done``: its bit)."""

    issue: Issue
    reach: Reach
    write: bool
    base: int
    cta: int
    warp: int = -1
    epoch: int = 0
    done: int = 0
    instance: Any = None
    slot: int = 0
    left: Any = None
    """Which of the distinct elements nobody overwrote since, None: all."""
    mark: int = 0
    """Of a cp.async: the epoch of the async_arrive that tells its completion, lane by lane."""
    named: Any = None
    """The threads to name, where an engine works for more than its issuer."""
    home: int = -1
    """The CTA whose shared memory is touched; -1: that of the threads."""

    @property
    def place(self) -> int:
        return self.cta if self.home < 0 else self.home

    @property
    def who(self) -> str:
        threads = self.reach.threads if self.named is None else self.named
        engine = "the engine for " if self.done and not self.epoch else ""
        return f"{engine}{ranges(threads.tolist())} of CTA {self.cta}"

    def access(self) -> Access:
        return Access(self.issue, self.who, self.issue.span)


@dataclass(frozen=True, eq=False)
class Actor:
    """Who makes an access: what its threads know, by classes of (thread ids, clock), or the
    one clock of an engine (``threads`` None). ``proxy``: the access is asynchronous."""

    classes: tuple[tuple[Any, Clock], ...]
    proxy: bool = False


FEW = 32
"""Accesses of one slot up to which each is looked at."""


class Kept:
    """The accesses of one slot, with the boxes around them where there are many."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._of: dict[int, list[int]] = {}
        self._boxed = 0
        self._low: Any = None
        self._high: Any = None

    def without(self, gone: set[int]) -> None:
        if gone:
            left = [r for n, r in enumerate(self.records) if n not in gone]
            self.records, self._of, self._boxed = [], {}, 0
            for record in left:
                self.append(record)

    def append(self, record: Record) -> None:
        self._of.setdefault(id(record.reach), []).append(len(self.records))
        self.records.append(record)

    def of(self, reach: Reach) -> Iterable[tuple[int, Record]]:
        """Those with this very reach, which they keep alive, and their numbers."""
        return ((n, self.records[n]) for n in self._of.get(id(reach), ()))

    def near(self, reach: Reach) -> Iterable[int]:
        """Those whose box meets that of ``reach``, by number; all where they are few."""
        count = len(self.records)
        if count <= FEW:
            return range(count)
        low, high = reach.box
        if self._low is None or len(self._low) < count:
            room = (2 * count, len(low))
            self._low, self._high = np.empty(room, np.int64), np.empty(room, np.int64)
            self._boxed = 0
        for n in range(self._boxed, count):
            self._low[n], self._high[n] = self.records[n].reach.box
        self._boxed = count
        meet = (self._low[:count] <= high) & (self._high[:count] >= low)
        return np.flatnonzero(meet.all(1)).tolist()


class Log:
    """Records by storage: (CTA or -1, buffer, slot)."""

    def __init__(self, places: Places, reports: Reports) -> None:
        self.places = places
        self.reports = reports
        self.records: dict[tuple[int, Buffer, int], Kept] = {}
        self.aliases: dict[tuple[Buffer, int], list[tuple[Buffer, int]]] = places.cache.setdefault(
            "aliases", {}
        )

    def _aliased(self, buffer: Buffer, slot: int) -> list[tuple[Buffer, int]]:
        """Other slots whose bytes overlap with these."""
        if (buffer, slot) not in self.aliases:
            span = self._span(buffer, slot)
            self.aliases[buffer, slot] = [
                (other, n)
                for other in self.places.used
                for n in range(len(other.offsets))
                if (other, n) != (buffer, slot) and other.storage == buffer.storage
                if self._span(other, n)[0] < span[1] and span[0] < self._span(other, n)[1]
            ]
        return self.aliases[buffer, slot]

    def _span(self, buffer: Buffer, slot: int) -> tuple[int, int]:
        address = self.places.address(buffer)
        at = buffer.offsets[slot]
        return at + int(address.min()), at + int(address.max()) + buffer.dtype.bits // 8

    def add(self, record: Record, actor: Actor, slot: int) -> list[Record]:
        """One access; reports each earlier one that it is not ordered with.

        Returns the writes of the same instance of the statement by other units to the same
        elements: replicated holders, which must have stored the same values.
        """
        buffer = record.reach.buffer
        twins: list[Record] = []
        mixed = False
        if buffer not in self.places.written or not len(record.reach.element):
            return twins
        record.slot = slot
        shared = buffer.storage in self.places.addressed
        here = record.place if shared else -1
        for other, n in ((buffer, slot), *(self._aliased(buffer, slot) if shared else ())):
            key = (here, other, n)
            kept = self.records.get(key)
            if kept is None:
                continue
            same = other is buffer and n == slot
            gone: set[int] = set()
            # boxes of two buffers say nothing of one another
            for number in kept.near(record.reach) if same else range(len(kept.records)):
                old = kept.records[number]
                again = self._again(old, record)
                mixed |= again
                if again or not (record.write or old.write):
                    continue
                if self._check(old, record, actor, same):
                    twins.append(old)
                elif record.write and self._covered(old, record, same):
                    gone.add(number)
            kept.without(gone)
        mine = self.records.setdefault((here, buffer, slot), Kept())
        if record.epoch and not record.done:
            # the same threads later: program order makes the earlier record redundant
            mine.without({n for n, r in mine.of(record.reach)
                          if r.warp == record.warp
                          and r.write == record.write and r.left is None and not r.done
                          and r.cta == record.cta and r.home == record.home})  # fmt: skip
        mine.append(record)
        return [] if mixed else twins  # what lies there is of another step

    def _again(self, old: Record, new: Record) -> bool:
        """Two steps of one statement write what several units hold: each of these writes there
        in both, so that the value of the later one stays, whoever is behind."""
        if not (old.issue is new.issue and old.write and new.write and old.epoch and new.epoch):
            return False
        if old.cta != new.cta or old.instance == new.instance:
            return False
        moving = self.places.moving(new.issue)
        return moving is not None and all(old.instance[n] == new.instance[n] for n in moving)

    def _covered(self, old: Record, new: Record, same: bool) -> bool:
        """Strike what ``new`` overwrites from ``old``; True if nothing is left."""
        cache = self.places.cache
        if same:
            if apart(old.reach, new.reach):
                return False
            key = ("covers", old.reach, new.reach)
        else:
            key = ("covers", old.reach, old.slot, new.reach, new.slot)
        if key not in cache:
            if same:
                cache[key] = np.isin(old.reach.elements, new.reach.elements, assume_unique=True)
            else:
                at = self.places.address(old.reach.buffer)[old.reach.elements]
                at = at + old.reach.buffer.offsets[old.slot]
                cache[key] = np.isin(at, new.reach.bytes(self.places, new.slot))
        hit = cache[key]
        left = ~hit if old.left is None else old.left & ~hit
        if not left.any():
            return True
        if not hit.any():
            return False
        old.left = left
        return False

    def _check(self, old: Record, new: Record, actor: Actor, same: bool) -> bool:
        """Reports a pair that is not ordered; True for twins (see ``add``)."""
        ids = old.base + old.reach.threads
        if all(self._ordered(old, ids, clock, actor.proxy) for _, clock in actor.classes):
            return False
        pairs = self._meeting(old, new, same)
        if pairs is None:
            return False
        if (old.issue is new.issue and old.instance == new.instance and old.write and new.write
                and old.epoch and new.epoch):  # fmt: skip
            return True
        theirs, ours = pairs
        for threads, clock in actor.classes:
            told = bool(clock.done & old.done) and not (actor.proxy and old.epoch)
            if told and not old.mark:
                continue
            if told:
                bad = clock.seen[old.base + theirs] < old.mark
            elif old.done and not old.epoch:
                bad = np.ones(len(theirs), bool)
            else:
                known = clock.fenced if actor.proxy else clock.seen
                bad = known[old.base + theirs] < old.epoch
            if threads is not None:
                bad = bad & np.isin(ours, threads)
                bad = bad & (
                    (old.base + theirs != new.base + ours) | bool(old.done and not old.epoch)
                )
            if bad.any():
                late = old.base + theirs[bad]
                unfenced = bool(actor.proxy and old.epoch and np.all(clock.seen[late] >= old.epoch))
                self.unordered(old, new, theirs[bad], unfenced, clock)
                break
        return False

    def _ordered(self, old: Record, ids: Any, clock: Clock, proxy: bool) -> bool:
        if old.done and clock.done & old.done == old.done and not (proxy and old.epoch):
            return not old.mark or bool(clock.seen[ids].min() >= old.mark)
        if old.done and not old.epoch:
            return False
        return bool((clock.fenced if proxy else clock.seen)[ids].min() >= old.epoch)

    def _meeting(self, old: Record, new: Record, same: bool) -> tuple[Any, Any] | None:
        cache = self.places.cache
        if not same:
            key = ("bytes", old.reach, old.slot, new.reach, new.slot)
            if key not in cache:
                a = old.reach.bytes(self.places, old.slot)
                b = new.reach.bytes(self.places, new.slot)
                cache[key] = len(np.intersect1d(a, b, assume_unique=True)) > 0
            if not cache[key]:
                return None
            a, b = old.reach.threads, new.reach.threads
            return np.repeat(a, len(b)), np.tile(b, len(a))
        if old.left is not None:
            left = old.reach.elements[old.left]
            keep = np.isin(old.reach.element, left)
            thread = np.broadcast_to(old.reach.thread, old.reach.element.shape)[keep]
            return meeting(Reach(new.reach.buffer, old.reach.element[keep], thread), new.reach)
        key = ("meet", old.reach, new.reach)
        if key not in cache:
            cache[key] = meeting(old.reach, new.reach)
        return cache[key]

    def unordered(self, old: Record, new: Record, theirs: Any, unfenced: bool,
                  clock: Clock) -> None:  # fmt: skip
        """Reports two accesses, the first by threads ``theirs``, without an edge between."""
        buffer = new.reach.buffer
        what = f"{old.reach.buffer.name}"
        if old.reach.buffer.slots > 1:
            what += f" slot {old.slot}"
        if old.reach.buffer is not buffer:
            what += f" (whose bytes {buffer.name} shares)"
        act = "write" if old.write else "read"
        then = "overwrites" if new.write and not old.write else "writes" if new.write else "reads"
        whose = f"{ranges(theirs.tolist())} of CTA {old.cta}"
        if old.done and not old.epoch:
            whose = old.who
        says = (
            f"no edge from the {act} of {what} by {whose} "
            f"({describe(old.issue)}) to the access that {then} it by {new.who} "
            f"({describe(new.issue)})"
        )
        kind = "overwritten-slot" if new.write and not old.write else "race"
        report = Report(
            kind,
            says,
            missing_edge(old, new, unfenced, clock),
            old.access(),
            new.access(),
            buffer.name,
        )
        self.reports.add(report, (old.issue, new.issue, unfenced))


def missing_edge(old: Record, new: Record, unfenced: bool, clock: Clock) -> str:
    """What would order the two."""
    if unfenced:
        threads = ranges(old.reach.threads.tolist())
        return f"fence_proxy by {threads} after it, before the synchronisation that hands over"
    if old.done and not old.epoch:
        done = {
            "tiled_mma": "the wgmma_wait that retires it, and an arrive after that",
            "mbarrier": "a wait on the barrier that its bytes complete on",
            "bulk": "a bulk_wait by its issuer, and an arrive after that",
            "async": "an async_wait by its issuers, and a barrier after that",
        }
        if old.issue.instr == "tiled_mma":
            return done["tiled_mma"]
        if old.issue.writes[0].storage == "gmem":
            return done["bulk"]
        return done["mbarrier" if "barrier" in old.issue.attrs else "async"]
    if old.cta != new.cta:
        return "a cluster or grid barrier between them"
    if old.warp == new.warp and old.warp >= 0 and not new.done:
        return "a warp barrier (Sync warp) between them"
    if old.epoch and clock.seen[old.base + old.reach.threads].max() >= old.epoch:
        return "a warp barrier (Sync warp) before the lane that arrives for its warp"
    return "an arrive after it that a wait before the other observes, or a named barrier"
