"""Processes and what descends from them, as /proc shows them; nothing where there is no /proc."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes whose parent is ``pid``."""
    try:
        found: list[int] = []
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
            found += map(int, text.split())
        return found
    except OSError:  # no such process, or a kernel without that file
        return _parents().get(pid, [])


def descendants(pid: int) -> list[int]:
    """All that descend from ``pid``, parents before their children."""
    found, at = children(pid), 0
    while at < len(found):
        found += children(found[at])
        at += 1
    return found


def _parents() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(f"/proc/{name}/stat").read_text(encoding="ascii", errors="replace")
                found[int(text.rpartition(")")[2].split()[1])].append(int(name))
    return found


def threads_of(uid: int) -> int:
    """Threads that a user runs, which a limit on processes counts."""
    found = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    found += len(os.listdir(f"/proc/{name}/task"))
    return found


def resident(pids: list[int]) -> int:
    """Bytes of memory that processes hold, what they share counted once for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
            found += int(text.split()[1]) * page
    return found
