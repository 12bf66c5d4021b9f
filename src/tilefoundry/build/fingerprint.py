"""What code stands behind an answer: digests of folders whose files this process executes.

A process may have read a file before it was edited. A digest is given only of files that have
not changed since the process began, so that it is that of what is executed here.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tilefoundry import BEGAN
from tilefoundry.targets.folder import Folder

OURS = Path(__file__).parents[1]
PAGES = (".md", ".pyc")
"""Ends of files that no answer of a build is made of."""
TICK = 0.05
"""Seconds by which a file system's times may lag behind the clock."""


BY_NAME = frozenset(["__import__", "imp", "importlib", "pkgutil", "runpy", "zipimport"])
"""What imports modules whose names are not in the text."""


class Untold(Exception):
    """Something that decides an answer cannot be told."""


def ours() -> str:
    """Of this package."""
    return of_files(str(OURS))


def of_family(folder: Folder) -> str:
    """Of the folder of a family that is not ours. What it imports beside the standard library,
    us and itself is not seen, so that such a folder has none."""
    known = {*sys.stdlib_module_names, "tilefoundry", folder.package} - BY_NAME
    for path in folder.path.rglob("*.py"):
        for name in _imported(path, len(path.relative_to(folder.path).parts)):
            if name not in known:
                raise Untold(f"{path} imports {name}")
    return of_files(str(folder.path))


def of_files(folder: str) -> str:
    """Of every file in ``folder`` and the folders in it, by name and content."""
    digest = hashlib.blake2b(digest_size=16)
    found = sorted(_files(folder))
    for path in found:
        with open(path, "rb", buffering=0) as file:
            data = file.read()
            if os.fstat(file.fileno()).st_ctime > BEGAN - TICK:
                raise Untold(path)
        for part in (os.fsencode(path[len(folder) :]), data):
            digest.update(len(part).to_bytes(8, "little") + part)
    executed = {m.__file__ for m in [*sys.modules.values()] if getattr(m, "__file__", None)}
    gone = {f for f in executed if f and f.startswith(folder + os.sep)}.difference(found)
    if gone:
        raise Untold(gone.pop())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[str]:
    """Files that may be read or executed; refuses what is neither a file nor a folder of ours."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif not entry.is_file():
                raise Untold(entry.path)
            elif not entry.name.endswith(PAGES):
                yield entry.path


def _imported(path: Path, depth: int) -> Iterator[str]:
    """First names of the modules that a file imports by their whole name, or from above the
    folder that it lies in ``depth`` deep; and what it imports others by."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        raise Untold(str(path)) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level > depth:
            yield "." * node.level
        elif isinstance(node, ast.Name) and node.id in BY_NAME:
            yield node.id
