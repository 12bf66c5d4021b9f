"""Synchronisation objects: mbarriers, named barriers and meetings of many warps.

PTX ISA, "Parallel Synchronization and Communication Instructions": mbarrier (phases,
pending counts and transaction bytes), barrier{.cta}, barrier.cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilefoundry.interpret.clock import Clock
from tilefoundry.interpret.report import Report, Reports
from tilefoundry.tir.program import Barrier


@dataclass(eq=False)
class MBarrier:
    """One mbarrier of one CTA. ``phase`` counts completed phases; ``clocks[k]`` is what a
    thread learns that observes the completion of phase k (all before it included)."""

    barrier: Barrier
    slot: int
    cta: int
    reports: Reports
    nothing: Clock
    ready: bool = False
    maker: int = -1
    made: int = 0
    fenced: bool = False
    phase: int = 0
    pending: int = 0
    bytes: int = 0
    """Expected and not arrived; negative while copies run ahead of their expect."""
    expected: int = 0
    attached: int = 0
    flying: int = 0
    clocks: dict[int, Clock] = field(default_factory=lambda: dict[int, Clock]())
    now: Clock | None = None
    seen: dict[Any, tuple[int, int | None]] = field(
        default_factory=lambda: dict[Any, tuple[int, int | None]]()
    )
    """By waiting lanes: the parity and the phase (None: not known) of its last wait."""

    @property
    def name(self) -> str:
        slot = f"[{self.slot}]" if self.barrier.slots > 1 else ""
        return f"{self.barrier.name}{slot} of CTA {self.cta}"

    def report(self, kind: str, says: str, missing: str = "") -> None:
        self.reports.add(
            Report(kind, f"{self.name}: {says}", missing, buffer=self.barrier.name),
            (says.split(":")[0], self.barrier),
        )

    def init(self, count: int, maker: int, epoch: int) -> None:
        if self.ready:
            self.report("barrier-misuse", "initialised twice")
        self.ready, self.maker, self.made = True, maker, epoch
        self.pending, self.now = count, self.nothing

    def visible(self, thread: int, clock: Clock, what: str) -> None:
        """The initialisation happened before ``what`` by ``thread``, and is fenced."""
        if not self.ready:
            self.report("barrier-misuse", f"{what} before it is initialised", "an init")
            self.init(self.barrier.count, thread, 0)
            self.fenced = True
        elif thread != self.maker and clock.seen[self.maker] < self.made:
            self.report(
                "barrier-misuse",
                f"{what} without an edge from its initialisation",
                "a CTA barrier after init and fence_init",
            )
        elif thread != self.maker and not self.fenced:
            self.report(
                "barrier-misuse",
                f"{what} although no fence makes its initialisation visible",
                "fence_init after init, before the CTA barrier",
            )

    def arrive(self, clock: Clock) -> bool:
        """One arrival; True if it completes the phase."""
        assert self.now is not None
        if self.pending == 0:
            self.report(
                "barrier-misuse",
                f"more than {self.barrier.count} arrivals in phase {self.phase}",
            )
            return False
        self.pending -= 1
        self.now = self.now.join(clock)
        return self._complete()

    def expect(self, count: int, clock: Clock) -> bool:
        self.bytes += count
        self.expected += count
        return self.arrive(clock)

    def attach(self, count: int) -> int:
        """A copy of ``count`` bytes was issued; the phase that it belongs to."""
        self.attached += count
        self.flying += 1
        return self.phase

    def delivered(self, count: int, phase: int, done: int) -> bool:
        """Bytes of a copy of ``phase`` have landed."""
        assert self.now is not None
        self.flying -= 1
        if phase != self.phase:
            self.report(
                "bytes-mismatch",
                f"phase {phase} completed before its copies: {count} bytes came after it",
                "expect the bytes of every copy of the phase",
            )
        self.bytes -= count
        self.now = self.now.plus(done)
        return self._complete()

    def _complete(self) -> bool:
        if self.pending or self.bytes:
            return False
        if self.attached != self.expected:
            self.mismatch()
        assert self.now is not None
        self.clocks[self.phase] = self.now
        self.clocks.pop(self.phase - 8, None)
        self.phase += 1
        self.pending = self.barrier.count
        self.expected = self.attached = 0
        return True

    def mismatch(self) -> None:
        self.report(
            "bytes-mismatch",
            f"a phase expects {self.expected} bytes, its copies deliver {self.attached}",
            f"expect of {self.attached} bytes",
        )

    def stuck_on_bytes(self) -> bool:
        """Nothing in flight can complete this phase: its bytes don't add up."""
        return (
            self.ready
            and not self.flying
            and bool(self.bytes)
            and (self.pending == 0 or self.bytes < 0)
        )

    def target(self, who: Any, parity: int) -> int | None:
        """The phase that this wait of ``who`` is for, from its earlier waits: the one after
        the last if the parity alternates; None if it can't be told."""
        last = self.seen.get(who)
        if last is None:
            # the first wait: of phase 0, or of the one before it, which has completed
            found = None if self.phase >= 2 else 0 if parity == 0 else -1
        else:
            before, phase = last
            found = phase + 1 if phase is not None and before != parity else None
        self.seen[who] = (parity, found)
        return found

    def passes(self, parity: int) -> bool:
        return self.phase & 1 != parity

    def lacks(self) -> str:
        """What the current phase is short of."""
        short = f"{self.pending} of {self.barrier.count} arrivals and {self.bytes} bytes"
        return f"an arrive on {self.barrier.name} (its current phase {self.phase} lacks {short})"

    def learned(self, target: int | None) -> Clock:
        """What a wait on ``target`` makes known: phases up to it, whatever completed since."""
        upto = self.phase - 1 if target is None else min(target, self.phase - 1)
        return self.clocks.get(upto, self.nothing) if upto >= 0 else self.nothing

    def waits(self, target: int | None) -> None:
        """Reports a phase so long past that its parity means another one."""
        if target is not None and self.phase >= target + 2:
            self.report(
                "barrier-misuse",
                f"a wait for phase {target} while phase {self.phase} runs: its parity is ambiguous",
                "an edge that keeps the arrivals from running two phases ahead",
            )


@dataclass(eq=False)
class Meeting:
    """Warps that wait for each other, time after time: a named barrier, a cluster or grid
    barrier, a collective. ``need`` counts threads or warps."""

    nothing: Clock
    need: int = 0
    came: int = 0
    round: int = 0
    now: Clock | None = None
    clocks: dict[int, Clock] = field(default_factory=lambda: dict[int, Clock]())
    """By round, the latest few: what its completion makes known."""
    gifts: list[Any] = field(default_factory=lambda: list[Any]())
    shown: dict[int, list[Any]] = field(default_factory=lambda: dict[int, list[Any]]())
    """By round: what the participants brought."""

    def come(self, count: int, clock: Clock) -> bool:
        """``count`` more have come; True if that completes the round."""
        self.now = clock if self.now is None else self.now.join(clock)
        self.came += count
        if self.came < self.need:
            return False
        self.clocks[self.round], self.now = self.now, None
        self.shown[self.round], self.gifts = self.gifts, []
        self.clocks.pop(self.round - 4, None)
        self.shown.pop(self.round - 4, None)
        self.came -= self.need
        self.round += 1
        return True
