"""Functions and modules of a program, as parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.expr import OpenDim
from tilefoundry.ir.mesh import Topology
from tilefoundry.ir.node import Block, Node, Return
from tilefoundry.ir.types import Type


@dataclass(frozen=True, eq=False)
class Variant:
    """A specialisation: the body that serves ``lo <= dim <= hi``."""

    dim: str
    lo: int
    hi: int
    func: Func


@dataclass(frozen=True, eq=False)
class Func:
    """One function: parameters (weights flagged by name), body, result type."""

    name: str
    params: tuple[Node, ...]
    weights: frozenset[str]
    body: Block
    returns: Return
    result: Type
    span: Span
    opens: tuple[OpenDim, ...] = ()
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, eq=False)
class Module:
    """One module: target, topologies, functions by name, children by attribute path.

    ``weight_names`` maps a weight parameter, or a child's attribute, to its name in a
    checkpoint, relative to the module's own prefix; what is not listed keeps its name.
    """

    name: str
    entry: str
    target: Any
    topologies: tuple[Topology, ...]
    funcs: Mapping[str, Func]
    children: Mapping[str, Module] = field(default_factory=lambda: dict[str, Module]())
    span: Span | None = None
    weight_names: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
