"""Finding documents by id: shipped ones first, then the user's own, then those of families
that the user or installed packages add.

A document is read only when its id is asked for, so that adding one changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.targets.document import ID, LONGEST_ID, Architecture, Device, read_document
from tilefoundry.targets.fact import Family
from tilefoundry.targets.folder import SHIPPED, Folder, find_folder, folders, home
from tilefoundry.targets.target import Target

MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """A document's file and whose it is: ``shipped``, ``user``, or of the folder of a family
    that was added (``family``) or that an installed package has (``package``)."""

    id: str
    path: Path
    place: str


def load_target(id: str, span: Span | None = None) -> Target:
    """The target of the Device document ``id``.

    Refuses, at ``span``, an id that nothing has (``target-unknown``) or that an
    Architecture document has (``target-kind``); at its own lines, a document that is
    not valid.
    """
    document = load_document(id, span)
    if isinstance(document, Architecture):
        refuse("target-kind", span, id=id, found="architecture", wanted="device")
    return _composed(document)


def load_architecture(id: str) -> Architecture:
    """The Architecture document ``id``; refuses as :func:`load_target` does."""
    document = load_document(id)
    if isinstance(document, Device):
        refuse("target-kind", id=id, found="device", wanted="architecture")
    return document


def load_document(id: str, span: Span | None = None) -> Architecture | Device:
    """The document ``id``, from memory if its files have not changed."""
    found = find_document(id)
    if found is None:
        unknown(id, span)
    return _read_found(found)


def unknown(id: str, span: Span | None = None) -> NoReturn:
    """Refuse ``id``, naming what there is."""
    import difflib

    known = [found.id for found in documents()]
    near = difflib.get_close_matches(id, known, 1, 0.0)[0]
    refuse("target-unknown", span, id=id, known=" ".join(known), near=near)


def find_document(id: str) -> Found | None:
    """Where the document ``id`` is, or None; reads no document."""
    if not ID.fullmatch(id) or len(id) > LONGEST_ID:
        return None
    own = _shipped().get(id) or _in_folder(home(), "user").get(id)
    return own or next((found[id] for found in _added() if id in found), None)


def documents() -> Iterator[Found]:
    """Every document that can be asked for, in order of id; reads none."""
    every: dict[str, Found] = {}
    for found in reversed([*_added()]):
        every |= found
    every |= _in_folder(home(), "user") | _shipped()
    return (every[id] for id in sorted(every))


def read_file(path: str | Path, shown: str | None = None) -> tuple[str, Architecture | Device]:
    """Text and document of any file; ``shown`` names it in refusals."""
    text, file = read_text(path, shown), shown or str(path)
    return text, read_document(text, file, family_of, architecture_of)


def family_of(name: str) -> Family | None:
    """What the family ``name`` adds to the schema; None if there is none of that name."""
    folder = find_folder(name)
    return family_in(folder) if folder else None


def family_in(folder: Folder) -> Family:
    """What a folder adds to the schema; refuses one that declares no such family."""
    found = getattr(folder.module("schema"), "FAMILY", None)
    if not isinstance(found, Family) or found.name != folder.name:
        folder.fault("schema", f'it declares no FAMILY = Family("{folder.name}", ...)')
    return found


def architecture_of(id: str) -> Architecture | None:
    """The Architecture document ``id``, or None if there is none."""
    found = find_document(id)
    document = _read_found(found) if found else None
    return document if isinstance(document, Architecture) else None


# ---- reading


def _read_found(found: Found) -> Architecture | Device:
    file = str(found.path)
    if found.place == "shipped":
        file = str(found.path.relative_to(SHIPPED.parent.parent))
    try:
        state = found.path.stat()
    except OSError as error:
        _unreadable(file, error)
    document = _read_once(found, file, state.st_mtime_ns, state.st_size)
    if isinstance(document, Device):
        # The device was checked against the architecture that was there; it may be new.
        now = architecture_of(document.architecture.id)
        if now is not document.architecture:
            _read_once.cache_clear()
            document = _read_once(found, file, state.st_mtime_ns, state.st_size)
    return document


@cache
def _read_once(found: Found, file: str, mtime_ns: int, size: int) -> Architecture | Device:
    _, document = read_file(found.path, file)
    if document.id != found.id:
        refuse("target-misfiled", file=file, id=document.id)
    return document


@cache
def _composed(device: Device) -> Target:
    return Target(device)


def read_text(where: str | Path, shown: str | None = None) -> str:
    """The text of any file that may be a document; ``shown`` names it in refusals."""
    path, file = Path(where), shown or str(where)
    try:
        # Opened only if a file: a pipe would never end.
        if not path.is_file():
            reason = "it is a folder" if path.is_dir() else "there is no such file"
            refuse("target-unreadable", file=file, reason=reason)
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            refuse("target-unreadable", file=file, reason=f"it is over {MOST_BYTES} bytes")
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        refuse("target-unreadable", file=file, reason="it is not UTF-8")
    except (OSError, ValueError) as error:
        _unreadable(file, error)


def _unreadable(file: str, error: Exception) -> NoReturn:
    words = getattr(error, "strerror", None) or str(error)
    refuse("target-unreadable", file=file, reason=words.lower())


# ---- finding


@cache
def _shipped() -> dict[str, Found]:
    found: dict[str, Found] = {}
    for folder in SHIPPED.glob("*/facts"):
        found |= _in_folder(folder, "shipped")
    return found


def _in_folder(folder: Path, place: str) -> dict[str, Found]:
    try:
        paths = sorted(folder.glob("*.toml"))
    except OSError:
        return {}
    stems = [(path.name.removesuffix(".toml"), path) for path in paths]
    return {id: Found(id, path, place) for id, path in stems if ID.fullmatch(id)}


def _added() -> Iterator[dict[str, Found]]:
    """The documents of each family's folder that is not ours."""
    for folder in folders():
        if folder.place != "shipped":
            place = "family" if folder.place == "user" else folder.place
            yield _in_folder(folder.path / "facts", place)
