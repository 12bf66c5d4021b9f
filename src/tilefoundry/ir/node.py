"""Nodes and statement-ordered regions of the one IR.

A node is one operation's result and, by its place in a block, one statement.
Nodes compare by identity; analyses keep side tables keyed by node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tilefoundry.diag import Span
from tilefoundry.ir.expr import Dim, LoopVar
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType, TupleType, Type

if TYPE_CHECKING:
    from tilefoundry.ir.program import Func


class Operation(Protocol):
    """What a node needs of its operation; operations live in ``tilefoundry.ops``."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Structural:
    """An operation of the IR itself: parameters, constants, loop values, calls."""

    name: str


PARAM = Structural("param")
CONST = Structural("const")
"""A scalar of the program: attr ``value`` is a number or an index expression."""
CARRY = Structural("carry")
"""A loop-carried value at the head of a loop's body."""
RESULT = Structural("result")
"""A loop-carried value after the loop."""
CALL = Structural("call")
"""A call of another function: attr ``func``."""
ITEM = Structural("item")
"""One item of a tuple: attr ``index``."""


@dataclass(frozen=True, eq=False)
class Node:
    """``op(args, attrs) : type``, at ``span``, executed by the units of ``mesh``.

    ``name`` is the author's name for the value, empty for an unnamed one.
    """

    op: Operation
    args: tuple[Node, ...]
    attrs: Mapping[str, object]
    type: Type
    span: Span | None = None
    mesh: Mesh = field(default_factory=Mesh)
    name: str = ""

    @property
    def tensor(self) -> TensorType:
        """The type of a node that is one tensor."""
        assert isinstance(self.type, TensorType), self
        return self.type

    def __repr__(self) -> str:
        return f"<{self.name or '_'}: {self.op.name} {self.type}>"


@dataclass(frozen=True, eq=False)
class Block:
    """Statements in program order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class Scope:
    """``with MESH as NAME:``; values made inside stay visible after it.

    ``own`` is the mesh the author bound, ``mesh`` the units in force inside;
    ``source`` names the mesh binding that ``own`` narrows or re-arranges, with the
    index used, so that the scope prints as it was written.
    """

    own: Mesh
    mesh: Mesh
    binding: str
    body: Block
    span: Span | None = None
    source: str = ""


@dataclass(frozen=True, eq=False)
class Carried:
    """One loop-carried value: before, at the head, at the end of a step, after."""

    name: str
    init: Node
    head: Node
    step: Node
    result: Node


@dataclass(frozen=True, eq=False)
class Loop:
    """``for var in range(start, stop, step)``; ``window`` is the tile's extent for
    ``tf.tile``, None for a plain range."""

    var: LoopVar
    start: Dim
    stop: Dim
    step: Dim
    carried: tuple[Carried, ...]
    body: Block
    span: Span | None = None
    window: Dim | None = None


@dataclass(frozen=True, eq=False)
class Return:
    """The values a function returns."""

    values: tuple[Node, ...]
    span: Span | None = None


Stmt: TypeAlias = Node | Scope | Loop | Return


def walk(block: Block) -> Iterator[Stmt]:
    """Every statement in program order, scopes and loops before their bodies."""
    stack: list[Iterator[Stmt]] = [iter(block.stmts)]
    while stack:
        stmt = next(stack[-1], None)
        if stmt is None:
            stack.pop()
            continue
        yield stmt
        if isinstance(stmt, (Scope, Loop)):
            stack.append(iter(stmt.body.stmts))


def nodes(block: Block) -> Iterator[Node]:
    """Every node in program order, without parameters and carried values."""
    return (s for s in walk(block) if isinstance(s, Node))


__all__ = [
    "CALL",
    "CARRY",
    "CONST",
    "ITEM",
    "PARAM",
    "RESULT",
    "Block",
    "Carried",
    "Func",
    "Loop",
    "Node",
    "Operation",
    "Return",
    "Scope",
    "Stmt",
    "Structural",
    "TupleType",
    "nodes",
    "walk",
]
