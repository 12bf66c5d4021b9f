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
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilefoundry.diag import refuse

ALLOWED_SECONDS = 2e-4
ALLOWED_EACH = 1e-6
ALLOWED_PART = 0.05
"""What may be unaccounted for beyond the overhead of an empty batch: of a batch, of a call, and
the part of all."""

STOLEN_PART = 0.25
"""What of the calls' time a virtual machine may lose to others without being told."""

GIVING_SECONDS = 5e-3
"""What the first giving of results may take beyond five times the second, whose pages are there."""


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


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def read(pid: int) -> Reading:
    """The clocks now."""
    cpu: float | None = None
    with contextlib.suppress(OSError, AttributeError):
        # clock_getcpuclockid(3): the complement of the pid above three bits, 2 for CPU time
        cpu = time.clock_gettime((~pid << 3) | 2)
    waited: float | None = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        waited = sum(_waited(who) for who in (str(pid), "thread-self"))
    return Reading(time.perf_counter(), cpu, waited)


def _waited(who: str) -> float:
    """Seconds that a main thread stood in a processor's queue (``schedstat``)."""
    text = Path(f"/proc/{who}/schedstat").read_text(encoding="ascii")
    return int(text.split()[1]) / 1e9


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
class Overhead:
    """What an empty batch costs: seconds a request, seconds a call, and how much more a request
    may cost on a machine as busy as this one was."""

    request: Reading
    call: Reading
    noise: float = 0.0

    def of(self, calls: int) -> Reading:
        cpu = None
        if self.request.cpu is not None and self.call.cpu is not None:
            cpu = self.request.cpu + calls * self.call.cpu
        return Reading(self.request.wall + calls * self.call.wall, cpu)


def overhead(single: Sequence[Batch], many: Sequence[Batch]) -> Overhead:
    """From empty batches of one call and of more, taken before any author's code ran."""
    one, more = _typical(single), _typical(many)
    extra = len(many[0].times) - len(single[0].times)
    assert extra > 0
    call = Reading(
        max(0.0, more.wall - one.wall) / extra,
        None if more.cpu is None or one.cpu is None else max(0.0, more.cpu - one.cpu) / extra,
    )
    walls = sorted(b.excess().wall for b in single)
    noise = walls[len(walls) * 9 // 10] - one.wall  # of ten, one takes longer
    return Overhead(one, call, noise)


def _typical(batches: Sequence[Batch]) -> Reading:
    found = [b.excess() for b in batches]
    cpus = [r.cpu for r in found if r.cpu is not None]
    return Reading(median(r.wall for r in found), median(cpus) if cpus else None)


def hold(
    who: str,
    batches: Sequence[Batch],
    cost: Overhead,
    threads: int,
    allowed: float = ALLOWED_SECONDS,
) -> None:
    """Refuse a process whose times leave out what the parent's clocks show, beyond ``allowed``
    seconds a batch and what a call may.

    The median over the batches counts: what is hidden in fewer than half of them does not
    change a median. With one thread nothing else may run, so that its CPU time counts; wall
    time counts where nobody waited for a processor.
    """
    if not batches:
        return
    hidden: list[float] = []
    for batch in batches:
        left, usual = batch.excess(), cost.of(len(batch.times))
        told = sum(batch.times)
        room = allowed + cost.noise + ALLOWED_EACH * len(batch.times) + ALLOWED_PART * told
        wall = left.wall - usual.wall - room
        if left.cpu is None or usual.cpu is None:
            hidden.append(wall)
            continue
        cpu = left.cpu - usual.cpu - room
        seen = cpu if threads == 1 else min(wall, cpu)
        if left.waited is not None:
            seen = max(seen, wall - left.waited - STOLEN_PART * told)
        hidden.append(seen)
    typical = median(hidden)
    if typical > 0:
        told = median(sum(b.times) for b in batches)
        taken = median(b.taken.wall for b in batches)
        refuse("measure-clock", None, who=who, told=f"{told * 1e3:.3f}",
               taken=f"{taken * 1e3:.3f}", hidden=f"{typical * 1e3:.3f}")  # fmt: skip


def hold_giving(who: str, first: float, again: float) -> None:
    """Refuse a process that takes longer to give results the first time than the second, when
    they are there for certain."""
    hidden = first - 5 * again - GIVING_SECONDS
    if hidden > 0:
        refuse("measure-clock", None, who=who, told="0.000", taken=f"{first * 1e3:.3f}",
               hidden=f"{hidden * 1e3:.3f}")  # fmt: skip


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
