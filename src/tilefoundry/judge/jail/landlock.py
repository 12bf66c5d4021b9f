"""Landlock (landlock(7)): what files a process may read and write, without any privilege.

Everything may be read but the hidden files; what may be written is named. From its fourth
version on it also refuses TCP, from its sixth signals and abstract sockets to processes
outside; tracing those is refused in every version.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator

from tilefoundry.judge.jail import system

CREATE, ADD, RESTRICT = 444, 445, 446
EXECUTE, WRITE, READ, LIST = 1, 2, 4, 8
BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Rights over files that each version knows."""
OF_FILES = EXECUTE | WRITE | READ | 1 << 14 | 1 << 15
"""Rights that a file can have; the others are a folder's."""


def version() -> int:
    """The version that the kernel has; OSError where it has none."""
    return system.syscall(CREATE, None, 0, 1)


def restrict(hidden: Iterable[str], writable: Iterable[str]) -> int:
    """Restrict this process for good; the version. Needs no_new_privs."""
    known = version()
    rights = max(r for v, r in BY_VERSION.items() if v <= known)
    network = 3 if known >= 4 else 0
    scoped = 3 if known >= 6 else 0
    attributes = struct.pack("<3Q", rights, network, scoped)[
        : 8 * (1 + (known >= 4) + (known >= 6))
    ]
    rules = system.syscall(CREATE, attributes, len(attributes), 0)
    try:
        for path in spared("/", frozenset(map(os.path.realpath, hidden))):
            _allow(rules, path, EXECUTE | READ | LIST)
        _allow(rules, "/", LIST)
        for path in writable:
            _allow(rules, path, rights)
        system.syscall(RESTRICT, rules, 0)
    finally:
        os.close(rules)
    return known


def spared(folder: str, hidden: frozenset[str]) -> Iterator[str]:
    """The fewest paths below ``folder`` that hold everything but the ``hidden`` ones."""
    if folder in hidden:
        return
    inside = folder.rstrip("/") + "/"
    if not any(path.startswith(inside) for path in hidden):
        yield folder
        return
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return
    for name in entries:
        path = inside + name
        if not os.path.islink(path):
            yield from spared(path, hidden)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= OF_FILES
        system.syscall(ADD, rules, 1, struct.pack("<Qi", rights, place), 0)
    except OSError as error:
        if error.errno != errno.EBADFD:  # a file system that it does not rule
            raise
    finally:
        os.close(place)
