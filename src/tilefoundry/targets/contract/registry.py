"""Contracts by target: every file of a family's ``instr`` folder declares some."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from tilefoundry.diag import Span, refuse
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.unit import UnitInstr
from tilefoundry.targets.target import Target

Contract = MmaAtom | UnitInstr


@cache
def declared(family: str) -> tuple[Contract, ...]:
    """All contracts of a family, in the order of its files and of each file."""
    folder = Path(__file__).parents[1] / family / "instr"
    out: list[Contract] = []
    for path in sorted(folder.glob("[a-z]*.py")):
        out += import_module(f"tilefoundry.targets.{family}.instr.{path.stem}").CONTRACTS
    return tuple(sorted(out, key=lambda c: c.rank))


def contracts(target: Target) -> tuple[Contract, ...]:
    """Those whose capability the target's architecture has."""
    return tuple(c for c in declared(target.family) if c.capability in (None, *target.capabilities))


def find_contract(target: Target, path: str, span: Span | None = None) -> Contract:
    """The contract of ``T.path``; refuses one that is unknown or that the target lacks."""
    found = next((c for c in declared(target.family) if c.path == path), None)
    known = contracts(target)
    if found is None:
        names = " ".join(f"T.{c.path}" for c in known) or "none"
        refuse("contract-unknown", span, name=f"T.{path}", target=target.id, known=names)
    if found not in known:
        refuse("contract-capability", span, name=f"T.{path}", target=target.id,
               capability=found.capability)  # fmt: skip
    return found
