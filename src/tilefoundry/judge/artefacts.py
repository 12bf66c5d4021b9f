"""What a child executes beside Python and its packages, as the system tells the parent."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilefoundry.judge.process import Child

SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/", "/nix/", "/dev/", "/memfd:", "/SYSV", "/anon")
RUNTIMES = ("libgomp", "libomp", "libiomp", "libstdc++", "libgcc", "libm.", "libc.", "libc-",
            "libdl", "libpthread", "librt", "ld-linux", "libmvec", "libatomic", "libz", "libffi",
            "libcuda.", "libnvidia", "libcudart", "libutil", "libcrypto", "libssl", "liblzma",
            "libbz2", "libexpat", "libuuid", "libtinfo", "libncurses", "libsqlite",
            "libreadline", "libresolv", "libnss", "libquadmath", "libgfortran")  # fmt: skip
"""Libraries of compilers and of the system: they hold no kernels."""
LONGEST = 256 << 20
ASKED = ("parts", "naming its files")


def mapped(pid: int) -> set[str]:
    """Files that a process can execute code of; empty where the system does not tell."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            words = line.split(None, 5)
            if len(words) == 6 and "x" in words[1] and words[5].startswith("/"):
                found.add(words[5].removesuffix(" (deleted)"))
    return found


def own(files: Iterable[str]) -> list[str]:
    """Those of the candidate's own: neither Python's, nor a package's, nor the system's."""
    theirs = (*SYSTEM, *_homes())
    return sorted(f for f in files if not f.startswith(theirs))


def libraries(files: Iterable[str], usual: Iterable[str]) -> list[str]:
    """Libraries that may hold kernels, of packages that a process which only evaluates has
    not; and numpy."""
    files = list(files)
    mine, known = set(own(files)), {_package(f) for f in usual} - {"numpy"}
    return sorted(
        f
        for f in files
        if f not in mine
        and _package(f) not in known
        and not Path(f).name.startswith(RUNTIMES)
        and ".so" in Path(f).name
        and "lib-dynload" not in f
    )


def _package(path: str) -> str:
    """The package of Python that a library belongs to, else its own name."""
    parts = Path(path).parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1].removesuffix(".libs")
    return parts[-1]


def executed(child: Child, sources: Iterable[str] = ()) -> dict[str, str]:
    """What a child executes of its own: files that it maps, as the system tells, and those that
    it names itself: modules beside the ``sources`` that are hashed already, and the file of a
    kernel, which a device's driver maps elsewhere."""
    return told(child, child.ask(*ASKED), sources)


def told(child: Child, answer: Mapping[str, Any], sources: Iterable[str]) -> dict[str, str]:
    """The same of a child that has answered to ``ASKED``."""
    known = {os.path.realpath(path) for path in sources}
    named = answer.get("files", [])
    if not isinstance(named, list) or not all(isinstance(path, str) for path in named):
        child.died("it named its files in no known form")
    named = [path for path in own(named) if os.path.realpath(path) not in known]
    return hashes(child.pid, named) if child.pid else {}


def hashes(pid: int, named: Iterable[str] = ()) -> dict[str, str]:
    """The SHA-256 of what a process executes of its own, and of the files ``named``, by file
    name; one that another has too is told with its folder."""
    found: dict[str, str] = {}
    paths = own({*mapped(pid), *(path for path in named if path.startswith("/"))})
    names = Counter(Path(path).name for path in paths)
    for path in paths:
        for place in (f"/proc/{pid}/root{path}", path):
            with contextlib.suppress(OSError):
                file = Path(place)
                state = file.stat()
                if stat.S_ISREG(state.st_mode) and state.st_size <= LONGEST:
                    shared = names[file.name] > 1
                    name = f"{file.parent.name}/{file.name}" if shared else file.name
                    found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
                break
    return found


def _homes() -> tuple[str, ...]:
    places = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])}
    return tuple(f"{place.rstrip('/')}/" for place in places if place != "/usr")
