"""Traffic: bytes that statements read from and write to each storage.

``logical`` counts each value once for all units that only repeat what others do;
``executed`` counts every unit's own reads and writes, at every trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from tilefoundry.analyze.access import READ, Touch, touches
from tilefoundry.analyze.figure import EXACT, LOWER, ZERO, Figure, Undecidable, joined, undecided
from tilefoundry.analyze.flow import UPDATES, Site
from tilefoundry.analyze.program import Program, types_of
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import TensorType
from tilefoundry.ops.base import Op, call_of


@dataclass(frozen=True)
class Move:
    """One statement's reads or writes of one value: bytes of one unit's part of it per
    execution (its share along the axes ``over``), logical and executed bytes over all trips."""

    site: Site
    touch: Touch
    storage: str
    part: Dim
    over: tuple[Axis, ...]
    readers: tuple[Axis, ...]
    logical: Figure
    executed: Figure

    @property
    def value(self) -> Node:
        return self.touch.value

    @property
    def way(self) -> str:
        return self.touch.way


@dataclass
class TrafficTable:
    """Moves by node; totals by (storage, way)."""

    moves: list[Move] = field(default_factory=list)
    by_node: dict[Node, list[Move]] = field(default_factory=dict)

    def add(self, move: Move) -> None:
        self.moves.append(move)
        self.by_node.setdefault(move.site.node, []).append(move)

    def drop(self, move: Move) -> None:
        """Take ``move`` out: it need not be made."""
        self.moves.remove(move)
        self.by_node[move.site.node].remove(move)

    def total(self, storage: str, way: str) -> tuple[Figure, Figure]:
        """Logical and executed bytes of a storage, one way."""
        mine = [m for m in self.moves if (m.storage, m.way) == (storage, way)]
        return (
            sum((m.logical for m in mine), ZERO),
            sum((m.executed for m in mine), ZERO),
        )

    @property
    def storages(self) -> list[str]:
        return sorted({m.storage for m in self.moves})


def traffic_table(program: Program) -> TrafficTable:
    """Every statement's reads and writes, in program order."""
    out = TrafficTable()
    for site in program.flow.sites:
        for touch in touches(program, site):
            out.add(_move(program, site, touch))
    return out


def _move(program: Program, site: Site, touch: Touch) -> Move:
    value, way, type = touch.value, touch.way, touch.type
    part, over = _part(program, site, value, type)
    who = _who(program, site, type, way, over)
    issued = _issued(program, site, value, type) if way == READ else None
    if issued:  # a matrix instruction fetches its operands itself, not unit by unit
        part, precision = issued
        who, over = tuple(program.within(program.owner(type.storage), site.mesh)), ()
    else:
        precision = LOWER if _completes(site.node) else EXACT
    try:
        times = program.summed(site.nest, part)
    except Undecidable as why:
        unknown = undecided(why.reason)
        return Move(site, touch, type.storage, part, over, who, unknown, unknown)
    whose = program.differs(site) | set(over)
    once = tuple(a for a in who if a in whose)
    return Move(
        site,
        touch,
        type.storage,
        part,
        over,
        who,
        Figure(times.total(once), joined((precision, times.precision))),
        Figure(times.total(who), joined((precision, times.precision))),
    )


def _part(
    program: Program, site: Site, value: Node, type: TensorType
) -> tuple[Dim, tuple[Axis, ...]]:
    """Bytes of ``value`` that one unit touches, and the axes that divide it."""
    over = set(_dividing(program, site, value, type))
    axes = tuple(a for a in site.mesh.axes if a in over)
    whole = program.nbytes(type)
    return -((-whole) // prod(a.extent for a in axes)), axes


def _dividing(program: Program, site: Site, value: Node, type: TensorType) -> Iterator[Axis]:
    """Axes in force along which units touch different parts of ``value``: those it is split
    on, and those that split the domain dimension that one of its axes is."""
    node = site.node
    own = {d.axis for d in type.digits if d.axis in site.mesh.axes}
    if _copies(node) and type.shape == node.tensor.shape:
        yield from _copied(program, site, type, own, value is node)
        return
    yield from own
    if value is node or not isinstance(node.op, Op) or node.op.name in UPDATES:
        return
    rest = program.splits(node) - own
    if not rest:
        return
    call = call_of(node, program.context)
    relation = node.op.relation(call, tuple(t.shape for t in types_of(node)))
    dims = {}
    for coords, kind in zip(relation.results, types_of(node), strict=False):
        dims |= {d.axis: relation.iter_of(coords[d.dim]) for d in kind.digits}
    for arg, coords in zip(call.args, relation.operands, strict=False):
        for d in arg.digits if arg is not None else ():
            dims.setdefault(d.axis, relation.iter_of(coords[d.dim]))
    position = node.args.index(value)
    if len(node.args) != len(call.args) or position >= len(relation.operands):
        return
    mine = [relation.iter_of(c) for c in relation.operands[position]]
    for axis in rest:
        at = dims.get(axis)
        if at is not None and any(m is at for m in mine):
            yield axis


def _copied(
    program: Program, site: Site, type: TensorType, own: set[Axis], written: bool
) -> Iterator[Axis]:
    """Axes that divide a copy's read or write of a value split on ``own``.

    A read gives what the unit's part of the result needs: of a storage that units share,
    any of them sees the whole, whoever wrote what. A write is of the part that a unit holds
    where it says nothing else.
    """
    node = site.node
    source, made = node.args[0].tensor, node.tensor
    there = {d.axis for d in made.digits if d.axis in site.mesh.axes}
    private = set(program.within(program.owner(made.storage), site.mesh))
    if written:
        held = {d.axis for d in source.digits if d.axis in site.mesh.axes}
        finer = there - private <= held
        yield from own | (held - private if finer else set())
        return
    alone = set(program.within(program.owner(type.storage), site.mesh))
    yield from there | (own & alone) | (own - private)


def _copies(node: Node) -> bool:
    return node.op.name == "reshard" or (node.op.name == "schedule" and len(node.args) == 2)


def _completes(node: Node) -> bool:
    """Terms that units hold are combined: how they meet is the generated code's."""
    if node.op.name != "reshard":
        return False
    return bool(set(node.args[0].tensor.partial) - set(node.tensor.partial))


def _who(
    program: Program, site: Site, type: TensorType, way: str, over: tuple[Axis, ...]
) -> tuple[Axis, ...]:
    """Axes whose every unit makes the access.

    A read is made by whoever executes the statement. A write into storage that units share
    is made once for all units that would write the same.
    """
    holders = program.holders(site)
    if way == READ:
        shared = set(program.multicast(site))
        return tuple(a for a in holders if a not in shared)
    own = set(program.within(program.owner(type.storage), site.mesh)) | set(over)
    own |= program.differs(site)
    return tuple(a for a in site.mesh.axes if a in own)


def _issued(program: Program, site: Site, value: Node, type: TensorType) -> tuple[Dim, str] | None:
    """Bytes that a scheduled matrix instruction fetches of an operand in shared storage.

    Each issue reads its own part of lhs and rhs: over ``repeat`` (m, n, k), lhs is read n
    times and rhs m times. Without a written ``repeat``, once is a lower bound.
    """
    node = site.node
    if node.op.name != "schedule" or len(node.args) != 3 or value is node.args[0]:
        return None
    owner = program.owner(type.storage)
    inner = [a for a in site.mesh.axes if a not in program.within(owner, site.mesh)]
    if not inner or any(d.axis in inner for d in type.digits):
        return None
    whole = program.part(type, program.within(owner, site.mesh))
    repeat = node.attrs.get("repeat")
    if not isinstance(repeat, tuple) or len(repeat) != 3:
        return whole, LOWER
    return whole * (repeat[1] if value is node.args[1] else repeat[0]), EXACT
