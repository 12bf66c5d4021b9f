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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tilefoundry.diag import refuse
from tilefoundry.judge.jail import tree

ALLOWED_SECONDS = 2e-4
ALLOWED_EACH = 5e-7
ALLOWED_PART = 0.05
"""What may be unaccounted for beyond what the same takes for a program of ours: of a batch, of a
call, and the part of all."""

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


def others(pid: int) -> float:
    """CPU seconds of the processes that stand beside a child in its jail, those that have ended
    too; 0 where the system does not say."""
    first = _parent(pid)
    if not first:
        return 0.0
    found = sum(_ended(who) for who in (first, pid))
    for who in tree.descendants(first):
        if who != pid:
            with contextlib.suppress(OSError, AttributeError):
                found += time.clock_gettime((~who << 3) | 2)
    return found


def _stat(pid: int) -> list[str]:
    """What ``/proc/PID/stat`` says behind the command's name; empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _parent(pid: int) -> int:
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
class Cost:
    """What batches take beside their calls where nothing is hidden: of a program of ours, on
    tensors of the same sizes. ``noise``: how much more one of four takes, here and now."""

    usual: Reading
    noise: Reading

    def room(self, batch: Batch, allowed: float) -> float:
        """Seconds that a batch may leave out beyond what is usual and the noise."""
        told = sum(batch.times)
        return allowed + ALLOWED_EACH * len(batch.times) + ALLOWED_PART * (told + self.usual.wall)


FREE = Cost(Reading(0.0, 0.0), Reading(0.0, 0.0))


def cost_of(rehearsed: Sequence[Batch]) -> Cost:
    """From batches of a program of ours, each clock on its own; time in a processor's queue is
    no part of the noise."""
    found = [batch.excess() for batch in rehearsed]
    walls = [r.wall for r in found]
    cpus = [r.cpu for r in found if r.cpu is not None]
    usual = Reading(median(walls), median(cpus) if cpus else None)
    own = [r.wall - (r.waited or 0.0) for r in found]
    return Cost(usual, Reading(_noise(own), _noise(cpus) if cpus else None))


def _noise(values: Sequence[float]) -> float:
    """By how much the upper quartile is above the median."""
    return sorted(values)[len(values) * 3 // 4] - median(values)


def hold(
    who: str,
    batches: Sequence[Batch],
    known: Cost,
    threads: int,
    allowed: float = ALLOWED_SECONDS,
) -> None:
    """Refuse a process whose times leave out what the parent's clocks show, beyond ``allowed``
    seconds a batch, what a call may, and a part of all that is accounted for.

    The median over the batches counts: what is hidden in fewer than half of them does not
    change a median. With one thread nothing else may run, so that its CPU time counts; wall
    time counts where nobody waited for a processor.
    """
    if not batches:
        return
    few = len(batches) < FEW
    hidden: list[float] = []
    for batch in batches:
        left, room = batch.excess(), known.room(batch, allowed) * (5 if few else 1)
        wall = left.wall - known.usual.wall - known.noise.wall - room
        if left.cpu is None or known.usual.cpu is None:
            hidden.append(wall)
            continue
        cpu = left.cpu - known.usual.cpu - (known.noise.cpu or 0.0) - room
        seen = cpu if threads == 1 else min(wall, cpu)
        if left.waited is not None and not few:
            seen = max(seen, wall - left.waited - STOLEN_PART * sum(batch.times))
        hidden.append(seen)
    typical = min(hidden) if few else median(hidden)
    if typical > 0:
        told = median(sum(b.times) for b in batches)
        taken = median(b.taken.wall for b in batches)
        refuse("measure-clock", None, who=who, told=f"{told * 1e3:.3f}",
               taken=f"{taken * 1e3:.3f}", hidden=f"{typical * 1e3:.3f}")  # fmt: skip


def hold_alone(who: str, turns: Sequence[tuple[float, float]]) -> None:
    """Refuse a process beside which others of its jail compute: of each turn what they took, and
    what its calls took, in seconds."""
    if not turns:
        return
    hidden = median(took - OTHERS_SECONDS - ALLOWED_PART * told for took, told in turns)
    if hidden > 0:
        told = median(t for _, t in turns)
        taken = median(took + t for took, t in turns)
        refuse("measure-clock", None, who=who, told=f"{told * 1e3:.3f}",
               taken=f"{taken * 1e3:.3f}", hidden=f"{hidden * 1e3:.3f}")  # fmt: skip


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
