"""What a statement really reads and writes: views move nothing, updates only their part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilefoundry.analyze.flow import ADDS, UPDATES, VIEWS, Site
from tilefoundry.analyze.homes import destination
from tilefoundry.analyze.program import Program, types_of
from tilefoundry.check.rename import is_rename
from tilefoundry.ir.access import AccessRelation, Indirect, Iter, Whole
from tilefoundry.ir.expr import Dim, product, symbols
from tilefoundry.ir.node import CALL, Node, Structural
from tilefoundry.ir.types import IMMEDIATE, TensorType
from tilefoundry.ops.base import Op, call_of

READ, WRITE = "read", "write"
MADE_OF_NOTHING = frozenset({"empty"})


@dataclass(frozen=True)
class Touch:
    """One value that a statement reads or writes; ``type`` is of the part it touches.

    ``least`` elements are distinct whatever the data is: an index may name one row always.
    """

    value: Node
    way: str
    type: TensorType
    least: Dim


def touches(program: Program, site: Site) -> Iterator[Touch]:
    """Everything that a statement really moves, reads first."""
    node = site.node
    name = node.op.name
    if node.op is CALL or isinstance(node.op, Structural) or name in VIEWS | MADE_OF_NOTHING:
        return
    if name in UPDATES:
        yield from _update(program, node)
        return
    if name == "reshard" and (is_rename(node) or _is_kept(node)):
        return
    into = destination(node) if name == "schedule" and len(node.args) == 2 else None
    for arg in dict.fromkeys(node.args):  # an operand used twice is read once
        for type in types_of(arg):
            if type.storage != IMMEDIATE and arg is not into:
                yield _read(program, node, arg, type)
    for type in types_of(node):
        if type.storage != IMMEDIATE:
            yield Touch(node, WRITE, type, type.size)


def _is_kept(node: Node) -> bool:
    """A reshard to the type that the value has already, in no device memory."""
    return node.args[0].type == node.type and node.tensor.storage != "gmem"


def _update(program: Program, node: Node) -> Iterator[Touch]:
    """A write of a part of the destination; of the whole where the old one lives on."""
    homes = program.homes.of
    dst, update = node.args[0], node.args[UPDATES[node.op.name]]
    there, kept = homes.get(dst), homes.get(node)
    if homes.get(update) is there and there is not None:
        return  # the update was made in its place
    for arg in dict.fromkeys(node.args[1:]):
        if arg.tensor.storage != IMMEDIATE:
            yield Touch(arg, READ, arg.tensor, arg.tensor.size)
    part = update.tensor.with_(storage=dst.tensor.storage)
    if kept is not there:
        yield Touch(dst, READ, dst.tensor, dst.tensor.size)
        yield Touch(node, WRITE, node.tensor, node.tensor.size)
        return
    if node.op.name in ADDS:
        yield Touch(dst, READ, part, 0)
    yield Touch(node, WRITE, part, part.size)


def _read(program: Program, node: Node, value: Node, type: TensorType) -> Touch:
    """A read of an operand; only what the indices can name where it is indexed by data."""
    if isinstance(node.op, Op) and len(node.args) == len(relation_args(node)):
        at = node.args.index(value)
        relation = _relation(program, node)
        if at < len(relation.operands) and any(
            isinstance(c, Indirect) for c in relation.operands[at]
        ):
            count, least = _indexed(relation, at, type)
            return Touch(value, READ, type.with_(shape=(count,), layout=None), least)
    return Touch(value, READ, type, type.size)


def relation_args(node: Node) -> tuple[object, ...]:
    """Operand positions of ``node``, one entry each, those left out included."""
    given = node.attrs.get("given")
    return given if isinstance(given, tuple) else node.args


def _relation(program: Program, node: Node) -> AccessRelation:
    assert isinstance(node.op, Op)
    shapes = tuple(t.shape for t in types_of(node))
    return node.op.relation(call_of(node, program.context), shapes)


def _indexed(relation: AccessRelation, at: int, type: TensorType) -> tuple[Dim, Dim]:
    """Elements that an operand with data-dependent coordinates has read of it, and how many
    are distinct at least (every index naming one place)."""
    whole: Dim = 1
    direct: set[Iter] = set()
    named: set[Iter] = set()
    for extent, coord in zip(type.shape, relation.operands[at], strict=True):
        if isinstance(coord, Whole):
            whole = whole * extent
        elif isinstance(coord, Indirect):
            for c in relation.operands[coord.operand]:
                if not isinstance(c, Whole | Indirect):
                    named |= _dims(relation, c)
        else:
            direct |= _dims(relation, coord)
    least = whole * product(d.extent for d in direct - named)
    return whole * product(d.extent for d in direct | named), least


def _dims(relation: AccessRelation, coord: Dim) -> set[Iter]:
    held = symbols(coord)
    return {d for d in relation.domain if d.var in held}
