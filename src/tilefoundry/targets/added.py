"""Adding a family: its folder is checked whole, then linked into the user's own folder."""

from __future__ import annotations

from pathlib import Path

from tilefoundry.diag import Span, refuse
from tilefoundry.targets.contract.registry import Contract, own_contracts
from tilefoundry.targets.document import Architecture, Device, read_document
from tilefoundry.targets.fact import Family
from tilefoundry.targets.folder import NAME, Folder, find_folder, home, user_folder
from tilefoundry.targets.load import (
    architecture_of,
    family_in,
    family_of,
    find_document,
    read_text,
)


def checked(path: Path) -> tuple[Folder, list[Architecture | Device], tuple[Contract, ...]]:
    """The folder at ``path``, its documents and its contracts.

    Refuses what is no family's folder (``target-code``), each fault of a document, an id or
    a name that another has (``target-taken``), and files that fail.
    """
    folder = user_folder(path.resolve())
    if not (folder.path / "schema.py").is_file() or not NAME.fullmatch(folder.name):
        why = "it has no schema.py" if NAME.fullmatch(folder.name) else (
            "its name, which is the family's, is not lower case letters, digits and _"
        )  # fmt: skip
        refuse("target-code", Span(str(path), 1), family=folder.name, why=why)
    taken = find_folder(folder.name)
    if taken is not None and taken.place != "user":
        refuse("target-taken", id=folder.name, place=taken.place)
    found: dict[str, Architecture | Device] = {}
    facts = sorted((folder.path / "facts").glob("*.toml"))

    def family(name: str) -> Family | None:
        return family_in(folder) if name == folder.name else family_of(name)

    def architecture(id: str) -> Architecture | None:
        file = folder.path / "facts" / f"{id}.toml"
        if file not in facts:
            return architecture_of(id)
        if id not in found:
            read(file)
        made = found[id]
        return made if isinstance(made, Architecture) else None

    def read(file: Path) -> None:
        id = file.name.removesuffix(".toml")
        made = read_document(read_text(file), str(file), family, architecture)
        if made.id != id:
            refuse("target-misfiled", file=str(file), id=made.id)
        if (other := find_document(id)) and other.path.resolve() != file.resolve():
            refuse("target-taken", id=id, place=other.place)
        found[id] = made

    for file in facts:
        if file.name.removesuffix(".toml") not in found:
            read(file)
    if not found:
        folder.fault("schema", "there is no document facts/*.toml beside it")
    return folder, [found[id] for id in sorted(found)], own_contracts(folder)


def link(folder: Folder, replace: bool) -> tuple[Path, bool]:
    """Links the folder into the user's own; whether one of its name was there."""
    place = home() / folder.name
    there = place.is_symlink() or place.exists()
    if there and not replace:
        refuse("target-exists", id=folder.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    if there:
        unlink(folder.name)
    place.symlink_to(folder.path, target_is_directory=True)
    return place, there


def unlink(name: str) -> Path:
    """Removes the link of the family ``name``; the folder that it leads to stays."""
    place = home() / name
    if not place.is_symlink():
        refuse("target-not-yours", id=name, place="folder (no link)")
    place.unlink()
    return place


__all__ = ["checked", "link", "unlink"]
