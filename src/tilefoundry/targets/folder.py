"""Folders of hardware: one for each family, ours, the user's, or of an installed package.

A folder holds ``schema.py`` (``FAMILY``: its memories, and facts that only it has),
``facts/*.toml`` (documents), ``instr/*.py`` (``CONTRACTS``), ``emit/`` (``program.py`` makes the
source of a program, ``EMITTERS`` of any file write instructions), and where it needs them
``rt/`` (what sources include) and ``host/`` (``compiler.py``, ``call.py``, ``export.py``,
``probe.py``, ``doctor.py``). ``records.py`` has the names by which authors write devices of ours.
Nothing outside a folder knows its name; each file is read when it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tilefoundry.diag import Refusal, Span, refuse

SHIPPED = Path(__file__).parent
GROUP = "tilefoundry.targets"
"""Entry points of this group name a family (their name) and its package (their value)."""
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder ``path`` of the family ``name``, whose files are imported from ``package``;
    ``place`` is whose it is: ``shipped``, ``user`` or ``package``."""

    name: str
    path: Path
    package: str
    place: str

    def module(self, part: str) -> ModuleType | None:
        """The file ``part`` (such as ``emit.program``), imported; None if there is none.
        Refuses a file of another's (``target-code``) that fails."""
        if not self.has(part):
            return None
        if self.place == "user":
            _as_package(self.package, self.path)
        name = f"{self.package}.{part}"
        if self.place == "shipped":
            return importlib.import_module(name)
        try:
            return importlib.import_module(name)
        except Refusal:
            raise
        except Exception as error:  # their own code: any failure is theirs
            self.fault(part, f"{type(error).__name__}: {error}", error)

    @property
    def read(self) -> bool:
        """Whether this process has asked for the family's documents."""
        return f"{self.package}.schema" in sys.modules

    def has(self, part: str) -> bool:
        """Whether there is a file ``part``; imports nothing."""
        return self.path.joinpath(*part.split(".")).with_suffix(".py").is_file()

    def modules(self, part: str) -> Iterator[tuple[str, ModuleType]]:
        """Every file of the sub-folder ``part`` with its name, imported, in order of name."""
        for path in sorted((self.path / part).glob("[a-z]*.py")):
            name = f"{part}.{path.stem}"
            found = self.module(name)
            assert found is not None, name
            yield name, found

    def fault(self, part: str, why: str, error: BaseException | None = None) -> NoReturn:
        """Refuses the file ``part``, at the line of it that ``error`` comes from."""
        file = str(self.path.joinpath(*part.split(".")).with_suffix(".py"))
        line, trace = 1, error.__traceback__ if error else None
        if isinstance(error, SyntaxError) and error.filename == file:
            line = error.lineno or 1
        while trace is not None:
            if os.path.realpath(trace.tb_frame.f_code.co_filename) == os.path.realpath(file):
                line = trace.tb_lineno
            trace = trace.tb_next
        refuse("target-code", Span(file, line), family=self.name, why=why)


def home() -> Path:
    """The user's folder of documents and families: ``$TILEFOUNDRY_HOME/targets``, by default
    under ``~``."""
    base = os.environ.get("TILEFOUNDRY_HOME") or os.path.expanduser("~/.tilefoundry")
    return Path(base, "targets")


def find_folder(name: str) -> Folder | None:
    """The folder of the family ``name``: ours first, then the user's, then a package's."""
    if not NAME.fullmatch(name):
        return None
    ours = _ours(name)
    if ours is not None:
        return ours
    path = home() / name
    if (path / "schema.py").is_file():
        return user_folder(path)
    found = (f for f in _packaged() if f.name == name)
    return next((f for f in found if (f.path / "schema.py").is_file()), None)


def folders() -> Iterator[Folder]:
    """Every folder once, ours first; imports none. A package's may hold documents alone."""
    seen: set[str] = set()
    mine = sorted(path.parent for path in _glob(home(), "*/schema.py"))
    for folder in (*shipped_folders(), *map(user_folder, mine), *_packaged()):
        if folder.name not in seen and NAME.fullmatch(folder.name):
            seen.add(folder.name)
            yield folder


@cache
def shipped_folders() -> tuple[Folder, ...]:
    """Those of our families, in order of their names; looks at no package, which takes time."""
    return tuple(_shipped(path.parent) for path in sorted(SHIPPED.glob("*/schema.py")))


def shipped(part: str) -> list[ModuleType]:
    """The file ``part`` of each of our families that has it, in order of their names."""
    found = (folder.module(part) for folder in shipped_folders())
    return [module for module in found if module is not None]


def user_folder(path: Path) -> Folder:
    """A folder of the user's, under its own name."""
    return Folder(path.name, path.resolve(), f"tilefoundry_family_{path.name}", "user")


@cache
def _ours(name: str) -> Folder | None:
    path = SHIPPED / name
    return _shipped(path) if (path / "schema.py").is_file() else None


def _shipped(path: Path) -> Folder:
    return Folder(path.name, path, f"{__package__}.{path.name}", "shipped")


def entry_points() -> list[tuple[str, str]]:
    from importlib.metadata import entry_points

    return sorted((point.name, point.value) for point in entry_points(group=GROUP))


def _packaged() -> tuple[Folder, ...]:
    return _installed(tuple(sys.path))


@cache
def _installed(search: tuple[str, ...]) -> tuple[Folder, ...]:
    """What packages on the path ``search``, which is Python's own, say."""
    return tuple(_found())


def _found() -> Iterator[Folder]:
    for name, package in entry_points():
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue  # a package that is not there has no folder
        for path in (spec and spec.submodule_search_locations) or ():
            yield Folder(name, Path(path), package, "package")


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return list(folder.glob(pattern))
    except OSError:
        return []


def _as_package(name: str, path: Path) -> None:
    """``path`` as the importable package ``name``."""
    known = sys.modules.get(name)
    if known is not None and list(known.__path__) == [str(path)]:
        return
    for inner in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[inner]
    package = ModuleType(name)
    package.__path__ = [str(path)]
    sys.modules[name] = package


__all__ = [
    "SHIPPED", "Folder", "entry_points", "find_folder", "folders", "home", "shipped",
    "shipped_folders", "user_folder",
]  # fmt: skip
