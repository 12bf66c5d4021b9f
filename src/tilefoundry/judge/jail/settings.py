"""What a jail is asked to be: its user, its limits, what it may reach."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tilefoundry
from tilefoundry.judge.jail import system

FIRST_USER, USERS = 61184, 4000
"""User ids that systemd keeps for services without a name of their own: nobody else's."""
NOBODY = 65534
PROCESSES, PROCESSES_EACH = 512, 8
"""Threads and processes that a child may have: as many, and more for each processor."""
OPEN_FILES = 4096
DISK_BYTES = 2 << 30
"""What a child may store, and half of the longest file."""
DEVICES = "/dev"
PLAIN = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue")
"""What every program may open there: nothing of it computes."""
SPARE = 9 / 10
"""Part of the machine's memory that a child may fill."""


def settings(
    folder: Path,
    own: Sequence[Path],
    number: int,
    seconds: float,
    device: str,
    hidden: Iterable[str],
    needed: Iterable[str],
) -> dict[str, Any]:
    """The first message to a jail; makes the folders ``own`` for where none can be mounted.

    ``number`` tells the children of one command apart; ``device`` is ``cpu`` or one of CUDA,
    whose driver reserves address space that is no memory used: only CPU runs are bounded. They
    reach no device that could compute for them, also while they stand still.
    """
    user, why = _user(number)
    if not user and sys.platform == "linux":
        system.prctl(system.SET_DUMPABLE, 0)  # our memory is closed to others of our own user
    memory = _memory() if device == "cpu" else 0
    processors = os.cpu_count() or 1
    for path in own:
        path.mkdir(mode=0o700, parents=True)
    if user:
        folder.chmod(0o711)
        own[0].parent.chmod(0o711)
        for path in own:
            os.chown(path, user, user)
    unreachable = _unreachable([*_needed(), str(own[0].parent), *needed]) if user else ""
    limits = {
        "CORE": 0,
        "FSIZE": 2 * DISK_BYTES,
        "NOFILE": OPEN_FILES,
        "NPROC": PROCESSES + PROCESSES_EACH * processors,
        "CPU": int(seconds * processors) + 10,
    }
    if memory:
        limits["DATA"] = memory
    return {
        "command": os.getpid(),
        "group": os.getpgid(0) if hasattr(os, "getpgid") else 0,
        "folder": str(folder),
        "own": [str(path) for path in own],
        "user": user or os.getuid(),
        "drop": bool(user),
        "why_user": why,
        "groups": _groups() if device != "cpu" else [],
        "reachable": not unreachable,
        "unreachable": unreachable,
        "hidden": [os.path.realpath(path) for path in hidden],
        "private": [str(folder)],
        "closed": _devices(bool(user)) if device == "cpu" else [],
        "devices": [f"{DEVICES}/{n}" for n in PLAIN] if device == "cpu" else [DEVICES],
        "disk": DISK_BYTES,
        "memory": memory,
        "limits": limits,
    }


def _user(number: int) -> tuple[int, str]:
    """A user that nobody else is; 0 and the reason where it cannot be taken."""
    if os.geteuid() != 0:
        return 0, "the command's own user: only root can take another"
    if sys.platform != "linux":
        return 0, f"root: other users are not taken on {sys.platform}"
    try:
        rows = Path("/proc/self/uid_map").read_text(encoding="ascii").split("\n")
        known = [(int(a), int(a) + int(n)) for a, _, n in (row.split() for row in rows if row)]
    except (OSError, ValueError):
        known = [(0, 1 << 32)]
    for user in (FIRST_USER + (os.getpid() * 8 + number) % USERS, NOBODY):
        if any(low <= user < high for low, high in known):
            return user, ""
    return 0, "root: this container knows no other user"


def _needed() -> list[str]:
    """What the child reads whatever it runs."""
    here = [sys.executable, os.path.realpath(sys.executable), sys.prefix, sys.base_prefix]
    return [*here, str(Path(tilefoundry.__file__)), os.getcwd()]


def _unreachable(paths: Iterable[str]) -> str:
    """The first of these paths, or of the folders above them, that is closed to other users."""
    for path in paths:
        path = os.path.abspath(path)
        folders = [str(folder) for folder in Path(path).parents][::-1]
        for place in [*folders, path]:
            try:
                mode = os.stat(place).st_mode
            except OSError:
                break
            wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
            if not mode & wanted:
                return f"{place} is closed to others"
    return ""


def _devices(dropped: bool) -> list[str]:
    """Device files that a child could open, beside the plain ones; ``dropped``: as a user of its
    own, without groups."""
    found: list[str] = []
    for folder, folders, names in os.walk(DEVICES):
        if folder == DEVICES:
            folders[:] = sorted({*folders} - {*PLAIN})
            names = sorted({*names} - {*PLAIN})
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                mode = os.lstat(path).st_mode
                others = mode & (stat.S_IROTH | stat.S_IWOTH) if dropped else 1
                if stat.S_ISCHR(mode) and others and os.access(path, os.R_OK | os.W_OK):
                    found.append(path)
    return found


def _groups() -> list[int]:
    """Groups without which an accelerator's device files are closed."""
    found: set[int] = set()
    for path in [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*")]:
        at = os.stat(path)
        if stat.S_ISCHR(at.st_mode) and not at.st_mode & stat.S_IWOTH:
            found.add(at.st_gid)
    return sorted(found - {0})


def _memory() -> int:
    """Bytes that a child may hold; 0 where the machine does not say what it has."""
    try:
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * SPARE)
    except (ValueError, OSError):
        return 0
