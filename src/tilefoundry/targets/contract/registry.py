"""Contracts by target: every file of an ``instr`` folder declares some; ``generic`` holds
those that all targets have."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from tilefoundry.diag import Span, refuse
from tilefoundry.targets.contract.copy import CopyInstr
from tilefoundry.targets.contract.derived import DerivedInstr, TiledInstr
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.unit import UnitInstr
from tilefoundry.targets.target import Target

Contract = MmaAtom | TiledInstr | UnitInstr | CopyInstr | DerivedInstr
GENERIC = "generic"
TARGETS = Path(__file__).parents[1]


@cache
def _in_folder(family: str) -> tuple[Contract, ...]:
    out: list[Contract] = []
    for path in sorted((TARGETS / family / "instr").glob("[a-z]*.py")):
        out += import_module(f"tilefoundry.targets.{family}.instr.{path.stem}").CONTRACTS
    return tuple(out)


def declared(family: str) -> tuple[Contract, ...]:
    """All contracts of a family and the generic ones, in the order of reports."""
    return tuple(sorted((*_in_folder(family), *_in_folder(GENERIC)), key=lambda c: c.rank))


@cache
def every_contract() -> dict[str, Contract]:
    """Every contract of every family, by path."""
    families = sorted(p.parent.name for p in TARGETS.glob("*/instr"))
    return {c.path: c for family in families for c in declared(family)}


def contracts(target: Target) -> tuple[Contract, ...]:
    """Those whose capability the target's architecture has."""
    return tuple(c for c in declared(target.family) if c.capability in (None, *target.capabilities))


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
