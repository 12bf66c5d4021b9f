"""The parent's clocks: what a process says of its own times is held to them.

Times of single calls are taken in the process that makes them, next to the call: a request
over a socket would add tens of microseconds. That process belongs to the candidate, which may
have replaced its clock; so for each batch the parent reads its own wall clock and the CPU time
that the kernel charged to the process. Work that is in neither of the process's times is seen
in both: a parent that is woken late adds wall time only, threads that spin add CPU time only.
Work of another process that the candidate started is on the wall clock alone; so is a machine
that is busy, but how long either side stood ready and waited for a processor, the system tells.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tilefoundry.diag import refuse
from tilefoundry.judge.jail import tree

ALLOWED_SECONDS = 2e-4
ALLOWED_EACH = 5e-7
ALLOWED_PART = 0.05
"""What may be unaccounted for beyond what the same takes for a program of ours: of a batch, of a
call, and the part of all."""
ALLOWED_GIVEN = 0.1
"""The part of what takes time without a call: results that went past the caches are read from
memory, those of a program of ours from a cache."""

CHANCE = 2
"""Distances from the median to the upper quartile. Medians of ten and of fifteen equal batches
differ by more one time in three hundred (three deviations, each of which is 0.37 of the distance
between the quartiles); a process has eight such pairs."""
CERTAIN, AGAIN = 2, 3
"""Starts of both sides' processes in which no noise explains what one hides, until it is refused;
starts that may be left out."""
FEW = 3
"""Batches whose median counts. One of fewer may have met anything: each must hide something
then, beyond five times the room, and wall time alone refuses none."""
OTHERS_SECONDS = 2e-3
"""What the other processes of a jail may compute in a turn, beside the part of its calls."""
STOLEN_PART = 0.25
"""What of the calls' time a virtual machine may lose to others without being told."""


@dataclass(frozen=True)
class Reading:
    """Seconds of wall time, of CPU time (of a process, all its threads), and for which that
    process's main thread and ours stood ready without a processor; None where the system does
    not say."""

    wall: float
    cpu: float | None
    waited: float | None = None

    def since(self, before: Reading) -> Reading:
        return Reading(
            self.wall - before.wall,
            _less(self.cpu, before.cpu),
            _less(self.waited, before.waited),
        )

    def until(self, stands: Reading) -> Reading:
        """This reading once the process stands: what it went on to compute counts, that stopping
        it took a while is nobody's doing."""
        late = stands.wall - self.wall
        waited = None if self.waited is None else self.waited + late
        return Reading(stands.wall, stands.cpu, waited)


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def read(pid: int) -> Reading:
    """The clocks now."""
    cpu: float | None = None
    with contextlib.suppress(OSError, AttributeError):
        cpu = time.clock_gettime(processor_clock(pid))
    waited: float | None = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited = sum(_waited(who) for who in (str(pid), "thread-self"))
    return Reading(time.perf_counter(), cpu, waited)


def processor_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) makes it: the complement of
    the pid above three bits, 2 for CPU time."""
    return (~pid << 3) | 2


def _waited(who: str) -> float:
    """Seconds that a main thread stood in a processor's queue (``schedstat``)."""
    text = Path(f"/proc/{who}/schedstat").read_text(encoding="ascii")
    return int(text.split()[1]) / 1e9


def others(pid: int) -> float:
    """CPU seconds of the processes that stand beside a child in its jail, those that have ended
    too; 0 where the system does not say."""
    first = parent(pid)
    if not first:
        return 0.0
    found = sum(_ended(who) for who in (first, pid))
    for who in tree.descendants(first):
        if who != pid:
            with contextlib.suppress(OSError, AttributeError):
                found += time.clock_gettime(processor_clock(who))
    return found


def _stat(pid: int) -> list[str]:
    """What ``/proc/PID/stat`` says behind the command's name; empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def parent(pid: int) -> int:
    """The process that a process was started by; 0 where the system does not say."""
    said = _stat(pid) if pid else []
    return int(said[1]) if said else 0


def _ended(pid: int) -> float:
    """CPU seconds of a process's children that it has waited for."""
    said = _stat(pid)
    return sum(map(int, said[13:15])) / os.sysconf("SC_CLK_TCK") if said else 0.0


@dataclass(frozen=True)
class Batch:
    """Times of single calls in seconds as their process took them, and the parent's clocks."""

    times: tuple[float, ...]
    taken: Reading

    def excess(self) -> Reading:
        """Time on the parent's clocks that is in no call."""
        told = sum(self.times)
        return Reading(self.taken.wall - told, _less(self.taken.cpu, told), self.taken.waited)


@dataclass(frozen=True)
class Range:
    """What one clock showed beside the calls of a program of ours, in seconds: the median, what
    the median of a side's batches may be by chance, the most."""

    usual: float = 0.0
    high: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Range:
        ordered = sorted(values)
        usual = median(ordered)
        above = ordered[len(ordered) * 3 // 4] - usual
        return cls(usual, usual + CHANCE * above, ordered[-1])

    @property
    def noise(self) -> float:
        """How much more the median may be by chance, here and now."""
        return self.high - self.usual


@dataclass(frozen=True)
class Cost:
    """What batches take beside their calls where nothing is hidden: of a program of ours, on
    tensors of the same sizes, at the same time. ``own``: the wall clock without what either side
    stood in a processor's queue; ``cpu`` is None where the system does not say."""

    wall: Range = Range()
    own: Range = Range()
    cpu: Range | None = None

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Cost:
        found = [batch.excess() for batch in batches]
        cpus = [r.cpu for r in found if r.cpu is not None]
        return cls(
            Range.of([r.wall for r in found]),
            Range.of([r.wall - (r.waited or 0.0) for r in found]),
            Range.of(cpus) if cpus else None,
        )

    @property
    def noise(self) -> float:
        """That of the clock which decides: of the processor where it is known."""
        return (self.cpu or self.own).noise

    def room(self, batch: Batch, allowed: float) -> float:
        """Seconds that a batch may leave out beyond what is usual and the noise: a part of its
        calls, or of what is usual where there are none."""
        told = sum(batch.times)
        part = ALLOWED_PART * told if told else ALLOWED_GIVEN * self.own.usual
        return allowed + ALLOWED_EACH * len(batch.times) + part


FREE = Cost(cpu=Range())


@dataclass(frozen=True)
class Doubt:
    """Clocks of a process that do not agree, in seconds: what it told of its calls, what the
    command's clock shows, what of that is in neither. ``certain``: three of four batches are
    beyond the most that a program of ours ever took, which no noise of then explains."""

    who: str
    told: float
    taken: float
    hidden: float
    certain: bool

    def __str__(self) -> str:
        told, taken, hidden = (f"{x * 1e3:.3f} ms" for x in (self.told, self.taken, self.hidden))
        return f"{self.who} took {hidden} more than it told: {told} of {taken}"


def doubt(
    who: str,
    batches: Sequence[Batch],
    known: Cost,
    threads: int,
    allowed: float = ALLOWED_SECONDS,
) -> Doubt | None:
    """Whether the times of a process leave out what the parent's clocks show, beyond ``allowed``
    seconds a batch, what a call may, a part of all that is accounted for, and the noise.

    The median over the batches counts: what is hidden in fewer than half of them does not
    change a median. With one thread nothing else may run, so that its CPU time counts; wall
    time counts where nobody waited for a processor.
    """
    if not batches:
        return None

    def found(at: Callable[[Range], float]) -> list[float]:
        return sorted(_hidden(b, known, at, threads, allowed, few) for b in batches)

    few = len(batches) < FEW
    seen = found(lambda r: r.high)
    hidden = seen[0] if few else median(seen)
    if hidden <= 0:
        return None
    told = median(sum(b.times) for b in batches)
    taken = median(b.taken.wall for b in batches)
    # what a program does is in three of four; memory that is slow for a while is in some
    least = found(lambda r: r.most)[0 if few else len(batches) // 4]
    return Doubt(who, told, taken, hidden, least > 0)


def aside(
    who: str, between: Sequence[Batch], usual: Sequence[Batch], threads: int, allowed: float
) -> Doubt | None:
    """Whether a process computes between its batches more than a program of ours. Several threads
    must take longer for it, too, and even then it is not certain: those that wait by spinning look
    the same."""
    found = doubt(who, between, Cost.of(usual), threads, allowed) if between else None
    if found is None or threads == 1:
        return found
    return replace(found, certain=False)


def _hidden(
    batch: Batch,
    known: Cost,
    at: Callable[[Range], float],
    threads: int,
    allowed: float,
    few: bool,
) -> float:
    """Seconds of a batch that are in no call, beyond room and what a program of ours took."""
    left, room = batch.excess(), known.room(batch, allowed) * (5 if few else 1)
    wall = left.wall - at(known.wall) - room
    if left.cpu is None or known.cpu is None:
        return wall
    cpu = left.cpu - at(known.cpu) - room
    seen = cpu if threads == 1 else min(wall, cpu)
    if left.waited is not None and not few:
        own = left.wall - left.waited - at(known.own) - room
        seen = max(seen, own - STOLEN_PART * sum(batch.times))
    return seen


def beside(who: str, turns: Sequence[tuple[float, float]]) -> Doubt | None:
    """Whether others in the jail of a process compute: of each turn what they took, and what its
    calls took, in seconds. No noise explains it: the system charged them with it."""
    if not turns:
        return None
    hidden = median(took - OTHERS_SECONDS - ALLOWED_PART * told for took, told in turns)
    if hidden <= 0:
        return None
    told = median(t for _, t in turns)
    return Doubt(who, told, median(took + t for took, t in turns), hidden, True)


def hold(doubts: Sequence[Sequence[Doubt]], clean: int) -> None:
    """Refuse a side whose clocks did not agree in ``doubts``, one for each start of both sides'
    processes, beside ``clean`` starts without any.

    What no noise explains, in more starts than there are without, and in two at least, is the
    program's doing. Other doubts are the machine's: their processes are left out and started anew,
    ``AGAIN`` times.
    """
    certain = Counter(who for found in doubts for who in {d.who for d in found if d.certain})
    for who, count in certain.items():
        if count >= max(CERTAIN, clean + 1):
            last = [d for found in doubts for d in found if d.who == who and d.certain][-1]
            refuse("measure-clock", None, who=who, told=f"{last.told * 1e3:.3f}", count=count,
                   taken=f"{last.taken * 1e3:.3f}", hidden=f"{last.hidden * 1e3:.3f}",
                   all=clean + len(doubts))  # fmt: skip
    if len(doubts) > AGAIN:
        refuse("measure-noisy", None, count=len(doubts), all=clean + len(doubts),
               why="; ".join(str(found[0]) for found in doubts))  # fmt: skip


def megahertz(cpus: Sequence[int]) -> tuple[list[float], str]:
    """The clock of each processor now in MHz, and where that is from; empty if nowhere."""
    scaling = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    try:
        found = [int(Path(scaling.format(c)).read_text()) / 1e3 for c in cpus]
        return found, "cpufreq"
    except (OSError, ValueError):
        pass
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return [], ""
    every = [float(x.partition(":")[2]) for x in lines if x.startswith("cpu MHz")]
    found = [every[c] for c in cpus if c < len(every)]
    return found, "/proc/cpuinfo" if found else ""
