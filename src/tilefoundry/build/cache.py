"""Compiled programs on disk, by their content.

An entry is a folder that appears whole: it is made aside and renamed, so that a process that
is killed leaves none, and any number of processes may want the same one at once. One of them
compiles while the others wait for its lock; a lock ends with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilefoundry.diag import refuse

STALE_SECONDS = 3600
"""Age from which what nobody renamed is what a killed process left."""


@dataclass(frozen=True)
class Entry:
    """One entry: its folder, the library in it, whether it was there before."""

    key: str
    folder: Path
    library: Path
    hit: bool


READ_ONLY = "TILEFOUNDRY_READ_CACHE"
"""The variable that names a cache whose entries are used, but to which none is added."""


def root() -> Path:
    """``$TILEFOUNDRY_CACHE``, else ``$TILEFOUNDRY_HOME/cache``, else ``tilefoundry`` under the
    user's cache folder."""
    if own := os.environ.get("TILEFOUNDRY_CACHE"):
        return Path(own)
    home = os.environ.get("TILEFOUNDRY_HOME")
    if home:
        return Path(home) / "cache"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "tilefoundry"


def key_of(parts: Iterable[str]) -> str:
    """A name for everything that decides what is compiled."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def places() -> tuple[Path, ...]:
    """Where entries may be: the cache, and the one that is only read, if there is another."""
    return tuple(dict.fromkeys((root(), Path(os.environ.get(READ_ONLY) or root()))))


def find(key: str, library: str) -> Entry | None:
    """The entry of ``key`` if there is one that this user may read."""
    for folder in (place / "build" / key for place in places()):
        if _readable(folder / library):
            return Entry(key, folder, folder / library, True)
    return None


def entry(key: str, library: str, make: Callable[[Path], None]) -> Entry:
    """The entry of ``key``; ``make`` fills a folder with ``library`` where there is none."""
    found = find(key, library)
    if found is not None:
        return found
    folder = root() / "build" / key
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_suffix(".lock")):
            if (folder / library).is_file():  # another process made it meanwhile
                return Entry(key, folder, folder / library, True)
            sweep(folder.parent)
            aside = folder.with_suffix(f".{secrets.token_hex(8)}.part")
            aside.mkdir()  # as others may read it as the user's mask allows: a jailed child is one
            try:
                make(aside)
                _publish(aside, folder, library)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        refuse("build-cache", None, path=folder.parent, why=error.strerror or error)
    return Entry(key, folder, folder / library, False)


def _readable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except PermissionError:  # the cache of a user whose folders this process may not enter
        return False


def _publish(aside: Path, folder: Path, library: str) -> None:
    for n in range(3):
        try:
            os.rename(aside, folder)
            return
        except OSError:
            if (folder / library).is_file() or n == 2:
                return
            shutil.rmtree(folder, ignore_errors=True)  # without its library it is no entry


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time, and not beyond its end."""
    import fcntl

    with open(path, "w") as file:
        with contextlib.suppress(OSError):  # a file system without locks: compile twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep(folder: Path) -> None:
    """Removes what killed processes left of entries that they made."""
    now = time.time()
    for part in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            if now - part.stat().st_mtime <= STALE_SECONDS:
                continue
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink()
