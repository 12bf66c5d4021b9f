"""Contracts by target: every file of an ``instr`` folder declares some; ``generic`` holds
those that all targets have."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import get_args

from tilefoundry.diag import Span, refuse
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.derived import DerivedInstr, TiledInstr
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.unit import UnitInstr
from tilefoundry.targets.folder import SHIPPED, Folder, find_folder, shipped_folders
from tilefoundry.targets.target import Target

Contract = MmaAtom | TiledInstr | UnitInstr | CopyInstr | DerivedInstr
GENERIC = "generic"


@cache
def _generic() -> tuple[Contract, ...]:
    files = sorted((SHIPPED / GENERIC / "instr").glob("[a-z]*.py"))
    package = f"tilefoundry.targets.{GENERIC}.instr"
    return tuple(c for f in files for c in import_module(f"{package}.{f.stem}").CONTRACTS)


@cache
def own_contracts(folder: Folder) -> tuple[Contract, ...]:
    """The contracts of a family's folder; refuses another's file that declares them wrongly."""
    out: dict[str, Contract] = {}
    for part, module in folder.modules("instr"):
        declared = getattr(module, "CONTRACTS", None)
        if folder.place != "shipped":
            _well_formed(folder, part, declared, out)
        out.update((c.path, c) for c in declared or ())
    return tuple(out.values())


def _well_formed(folder: Folder, part: str, declared: object, known: dict[str, Contract]) -> None:
    kinds = get_args(Contract)
    if not isinstance(declared, tuple) or not all(isinstance(c, kinds) for c in declared):
        folder.fault(part, "CONTRACTS is no tuple of contracts (MmaAtom, CopyInstr, UnitInstr)")
        return
    paths = [c.path for c in declared]
    for path in paths:
        if path.partition(".")[0] != folder.name:
            folder.fault(part, f"the path {path} does not begin with {folder.name}.")
        if path in known or paths.count(path) > 1:
            folder.fault(part, f"the path {path} is declared twice")


def declared(family: str) -> tuple[Contract, ...]:
    """All contracts of a family and the generic ones, in the order of reports."""
    return _in_order(find_folder(family))


@cache
def _in_order(folder: Folder | None) -> tuple[Contract, ...]:
    own = own_contracts(folder) if folder else ()
    return tuple(sorted((*own, *_generic()), key=lambda c: c.rank))


@cache
def _shipped(path: str) -> Contract | None:
    """Ours at ``path``. Files of a family that no program here is for take time to import: they
    are read last, which changes nothing, as a path is declared once."""
    for folder in (None, *sorted(shipped_folders(), key=lambda f: not f.read)):
        for contract in own_contracts(folder) if folder else _generic():
            if contract.path == path:
                return contract
    return None


def contract_at(path: str) -> Contract | None:
    """The contract of the instruction ``T.path`` of any family; None if there is none."""
    return _shipped(path) or next((c for c in _beside(path) if c.path == path), None)


def known_beside(path: str) -> tuple[Contract, ...]:
    """Contracts that ``path`` may be meant for: ours, and those of the family it begins with."""
    ours = (c for folder in shipped_folders() for c in own_contracts(folder))
    return (*_beside(path), *ours, *_generic())


def added_folder(path: str) -> Folder | None:
    """The folder of a family that is not ours in which ``T.path`` is looked for; None for ours."""
    return None if _shipped(path) else _folder_beside(path)


def _beside(path: str) -> tuple[Contract, ...]:
    folder = _folder_beside(path)
    return own_contracts(folder) if folder else ()


def _folder_beside(path: str) -> Folder | None:
    # another's paths begin with its name, so that only its folder is read
    folder = find_folder(path.partition(".")[0])
    return folder if folder and folder.place != "shipped" else None


def contracts(target: Target) -> tuple[Contract, ...]:
    """Those whose capability the target's architecture has."""
    return _able(find_folder(target.family), target.capabilities)


@cache
def _able(folder: Folder | None, capabilities: tuple[str, ...]) -> tuple[Contract, ...]:
    return tuple(c for c in _in_order(folder) if c.capability in (None, *capabilities))


def find_contract(target: Target, path: str, span: Span | None = None) -> Contract:
    """The contract of ``T.path``; refuses one that is unknown or that the target lacks."""
    found = next((c for c in declared(target.family) if c.path == path), None)
    known = contracts(target)
    if found is None:
        uses = [c for c in known if not isinstance(c, DerivedInstr)]
        names = " ".join(f"T.{c.path}" for c in uses) or "none"
        refuse("contract-unknown", span, name=f"T.{path}", target=target.id, known=names)
    if found not in known:
        refuse("contract-capability", span, name=f"T.{path}", target=target.id,
               capability=found.capability)  # fmt: skip
    return found
