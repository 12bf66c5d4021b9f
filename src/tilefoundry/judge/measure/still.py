"""Results of timed calls, read from the memory of a process that stands still.

Once a batch has answered, all that lives in the process's jail is stopped, and the command reads
its memory itself (``/proc/PID/mem``): nothing computes while it reads, so that what was not there
by then is missing, and no clock need tell whether reading took too long. What is worked on after
the answer is on the processor clock, which is read once the process stands. That it stood all the
while is held too: a timer that was set before can wake it, but nothing computes without being
charged for it. Where the system does not let the command read, results are given by the process
(``giving``), under a clock.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from tilefoundry.judge.jail import tree
from tilefoundry.judge.measure.clock import parent, processor_clock
from tilefoundry.judge.measure.giving import tensor_of
from tilefoundry.judge.measure.raw import PROBE
from tilefoundry.judge.process import Child
from tilefoundry.judge.tensor import RawTensor
from tilefoundry.judge.wire import Malformed

SPREAD, LEAST = 64, 1 << 20
"""How far the elements of a result may lie apart, as a multiple of the bytes of all results."""
PATIENCE = 5.0
"""Seconds in which what was stopped must stand."""
ENDED = frozenset("ZX")
STOPPED = ENDED | frozenset("Tt")
PART = 1 << 28
"""Bytes of one read."""


class Still:
    """The memory of a child; ``results`` bytes are what one of its calls returns."""

    def __init__(self, child: Child, pid: int, memory: int) -> None:
        self.child, self.pid, self._memory = child, pid, memory
        self.results = 0
        self._charged: dict[int, float] = {}

    @classmethod
    def of(cls, child: Child, pid: int, probe: Any) -> Still | None:
        """None where the memory of the process ``pid`` cannot be read."""
        if not pid or not isinstance(probe, int):
            return None
        with contextlib.suppress(OSError, OverflowError, ValueError):
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(OSError, OverflowError):
                if os.pread(memory, len(PROBE), probe) == PROBE:
                    return cls(child, pid, memory)
            os.close(memory)
        return None

    def __del__(self) -> None:
        os.close(self._memory)

    def stop(self) -> None:
        """Stop all that lives in the jail, and wait until it stands."""
        until = time.monotonic() + PATIENCE
        self.child.stop()
        while not all(map(_stands, self._all())):
            if time.monotonic() > until:
                self.child.died("it does not stand still when it is stopped")
            time.sleep(1e-4)
        self._charged = self._charges()

    def _all(self) -> list[int]:
        first = parent(self.pid)
        return [who for who in tree.descendants(first) if who != first] if first else [self.pid]

    def _charges(self) -> dict[int, float]:
        """What the processor has done for each process that has not ended: what ended may be gone
        at any time, as the jail's first process takes it."""
        found: dict[int, float] = {}
        for who in self._all():
            with contextlib.suppress(OSError):
                charge = time.clock_gettime(processor_clock(who))
                if states(who) - ENDED:
                    found[who] = charge
        return found

    def read(self, places: Any, call: int) -> list[RawTensor]:
        """The results of a call, of which the process told where they lie."""
        try:
            found = [self._one(place) for place in places[call]]
            if self._charges() != self._charged:
                self.child.died("it went on while it was to stand still")
            return found
        except (LookupError, TypeError, ValueError, ArithmeticError, OSError, Malformed) as broken:
            self.child.died(f"it told of its results in no known form ({broken})")

    def _one(self, place: Any) -> RawTensor:
        *form, at = place
        most = max(LEAST, SPREAD * self.results)
        return tensor_of(form, self._bytes(at, form[3], most), most)

    def _bytes(self, at: Any, size: Any, most: int) -> bytes:
        if not (isinstance(at, int) and isinstance(size, int) and 0 <= size <= most and at >= 0):
            raise Malformed("results of no known size")
        found = bytearray()
        while len(found) < size:
            part = os.pread(self._memory, min(PART, size - len(found)), at + len(found))
            if not part:
                raise Malformed("results where no memory is")
            found += part
        return bytes(found)


def _stands(pid: int) -> bool:
    """Whether all threads of a process are stopped, or it has ended."""
    return states(pid) <= STOPPED


def states(pid: int) -> set[str]:
    """In which states the threads of a process are; none where it is gone."""
    found: set[str] = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text(encoding="ascii", errors="replace")
            found.add(text.rpartition(")")[2].split()[0])
    return found
