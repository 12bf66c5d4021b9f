"""Shipped documents: pages of a folder, their titles, outlines and sections."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import tilefoundry
from tilefoundry.diag import refuse

PACKAGE = Path(tilefoundry.__file__).parent
FENCE = re.compile(r"\s*(```+|~~~+)")
HEADING = re.compile(r"(?P<marks>#{1,6}) (?P<title>.+)")


@dataclass(frozen=True)
class Section:
    """A second-level section: the name that selects it, its heading; its text when read."""

    name: str
    title: str
    read: Callable[[], str]

    @property
    def text(self) -> str:
        return self.read()


@dataclass(frozen=True)
class Document:
    """A page; ``10-hir.md`` is called ``hir``, its place in the order is 10."""

    path: Path

    @property
    def name(self) -> str:
        return re.sub(r"\A\d+-", "", self.path.stem)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The first heading, without its marks."""
        return next((h["title"] for _, h in self._headings if h), self.name)

    @cached_property
    def sections(self) -> list[Section]:
        """The ``##`` sections in order, each with its heading and all below it."""
        lines = self.text.splitlines(keepends=True)
        starts = [(n, h["title"]) for n, h in self._headings if h["marks"] == "##"]
        ends = [n for n, _ in starts[1:]] + [len(lines)]
        return [
            Section(slug(title), title, partial("".join, lines[start:end]))
            for (start, title), end in zip(starts, ends, strict=True)
        ]

    @cached_property
    def _headings(self) -> list[tuple[int, re.Match[str]]]:
        """Line number and match of each heading outside fenced blocks."""
        found: list[tuple[int, re.Match[str]]] = []
        fence = ""
        for number, line in enumerate(self.text.splitlines()):
            if mark := FENCE.match(line):
                fence = "" if fence and line.strip() == fence else fence or mark[1]
            elif not fence and (heading := HEADING.fullmatch(line)):
                found.append((number, heading))
        return found


class Collected(Document):
    """A page that a module of the folder makes: ``TITLE``, ``outline()``, ``section(name)``
    and ``text()``."""

    @cached_property
    def _module(self) -> Any:
        return import_module(f"tilefoundry.{self.path.parent.name}.{self.path.stem}")

    @cached_property
    def text(self) -> str:
        return self._module.text()

    @property
    def title(self) -> str:
        return self._module.TITLE

    @cached_property
    def sections(self) -> list[Section]:
        made = self._module
        lines = made.outline().items()
        return [Section(name, line, partial(made.section, name)) for name, line in lines]


def slug(title: str) -> str:
    """A heading as one word: ``Layout forms`` is ``layout-forms``."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def documents(folder: str) -> list[Document]:
    """The pages of ``tilefoundry/<folder>`` in the order of their file names."""
    paths = [*(PACKAGE / folder).glob("*.md"), *(PACKAGE / folder).glob("[!_]*.py")]
    return [_document(path) for path in sorted(paths)]


def _document(path: Path) -> Document:
    return Collected(path) if path.suffix == ".py" else Document(path)


def find_document(folder: str, name: str) -> Document:
    """The page called ``name``, or a refusal with ``unknown-page``."""
    known = {document.name: document for document in documents(folder)}
    if name not in known:
        _unknown(f"{folder} page", name, list(known), f"tilefoundry {folder}")
    return known[name]


def find_section(folder: str, document: Document, name: str) -> Section:
    """The section called ``name``, by heading or slug, or a refusal with ``unknown-page``."""
    known = {section.name: section for section in document.sections}
    if slug(name) not in known:
        command = f"tilefoundry {folder} {document.name}"
        _unknown(f"section of {document.name}", name, list(known), command)
    return known[slug(name)]


def _unknown(kind: str, name: str, known: list[str], command: str) -> None:
    near = difflib.get_close_matches(name, known, 1)
    fix = f"{command} {near[0]}" if near else command
    refuse("unknown-page", kind=kind, name=name, known=" ".join(known), command=fix)
