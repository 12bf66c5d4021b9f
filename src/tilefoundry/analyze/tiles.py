"""Tiles of shared storage: which part each unit touches at each step, as index expressions.

Two units that evaluate to the same key touch the same tile; distinct keys are distinct
tiles. Everything is decided by evaluating the keys over units and steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod

from tilefoundry.analyze.access import WRITE
from tilefoundry.analyze.distinct import distinct, how_many
from tilefoundry.analyze.figure import EXACT, UPPER, Figure, Undecidable, open_names
from tilefoundry.analyze.flow import UPDATES, VIEWS, Site
from tilefoundry.analyze.homes import Home
from tilefoundry.analyze.program import Program
from tilefoundry.analyze.sums import closure
from tilefoundry.analyze.traffic import Move
from tilefoundry.analyze.trips import Span3, coordinates, function
from tilefoundry.ir.expr import Dim, Sym, bounds, multiple_of, substitute
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Loop, Node
from tilefoundry.ir.types import TensorType


@dataclass(frozen=True, eq=False)
class Access:
    """One access of a buffer in the storage that all units share.

    ``starts`` are where the touched part starts on each axis of the buffer, ``sizes`` its
    extents and ``most`` their largest over all steps; ``places`` are the mesh coordinates that
    further divide it; ``size`` the bytes of the largest part that one unit (of the processor
    level) touches in one execution, ``first`` those of the first step.
    """

    move: Move
    home: Home
    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    most: tuple[int, ...]
    places: tuple[Dim, ...]
    size: int
    first: Figure
    whole: int

    @property
    def site(self) -> Site:
        return self.move.site

    @property
    def precision(self) -> str:
        """Of figures that take every tile to be of ``size``."""
        return EXACT if self.sizes == self.most else UPPER

    @property
    def keys(self) -> tuple[Dim, ...]:
        """What tells one tile from another."""
        return (*self.starts, *self.places)


def access_of(program: Program, move: Move) -> Access | None:
    """The part of its buffer that ``move`` touches; None where sizes are open or the part
    is no box of the buffer (behind a reshape)."""
    where = _located(program, move)
    if where is None:
        return None
    home, starts, type = where
    deep = program.levels.index(program.target.processor.level)
    over = [a for a in move.over if program.levels.index(a.level) <= deep]
    if not isinstance(home.founder.type, TensorType):
        return None
    shape = tuple(program.bind(x) for x in type.shape)
    found = [program.most(x).value for x in shape]
    most = tuple(x for x in found if isinstance(x, int))
    size = program.nbytes(type, most)
    whole = program.nbytes(home.founder.tensor)
    if len(most) < len(shape) or not isinstance(size, int) or not isinstance(whole, int):
        return None
    places = tuple(Coord(a.name, 0, a.extent - 1, axis=a).expr() for a in over)
    size = -(-size // prod(a.extent for a in over))
    first = program.nbytes(type, at_first(program, move.site, shape))
    begun = (
        Figure(-(-first // prod(a.extent for a in over)))
        if isinstance(first, int)
        else Figure(size, UPPER)
    )
    begin = tuple(map(program.bind, starts))
    return Access(move, home, begin, shape, most, places, size, begun, whole)


def _located(program: Program, move: Move) -> tuple[Home, tuple[Dim, ...], TensorType] | None:
    """(buffer, starts in it, type of the part) behind slices and writes into place."""
    node = move.value
    if not isinstance(node.type, TensorType):
        return None
    type = node.type
    if move.way == WRITE:
        if node.op.name in UPDATES and node.op.name != "insert_slice":
            return None
        if move.touch.type.shape != type.shape and node.op.name == "insert_slice":
            update = node.args[1].tensor
            return program.homes.of[node], _tuple(node, "offsets"), update
        for use in program.flow.uses.get(node, ()):
            dst = use.node.args[0]
            written = use.node.op.name == "insert_slice" and use.node.args[1] is node
            if written and program.homes.of.get(node) is program.homes.of.get(dst):
                return program.homes.of[dst], _tuple(use.node, "offsets"), type
        return program.homes.of[node], (0,) * type.rank, type
    if move.touch.type.shape != type.shape:
        return None  # indexed by data
    return _behind(program, node, (0,) * type.rank, type)


def _behind(
    program: Program, node: Node, starts: tuple[Dim, ...], part: TensorType
) -> tuple[Home, tuple[Dim, ...], TensorType] | None:
    """The buffer behind the views that ``node`` is, and where ``part`` of it lies there.

    A reshape of a whole buffer that does more than add or drop axes of extent 1 is the
    frame itself: its elements are the buffer's.
    """
    sizes = part.shape
    while node.op.name in VIEWS:
        source = node.args[0]
        if node.op.name == "slice" and all(s == 1 for s in _tuple(node, "strides")):
            outer = _tuple(node, "starts")
            starts = tuple(a + b for a, b in zip(outer, starts, strict=True))
        elif node.op.name == "transpose":
            perm = [p % len(sizes) for p in node.attrs["perm"]]  # type: ignore[attr-defined]
            starts = tuple(starts[perm.index(n)] for n in range(len(perm)))
            sizes = tuple(sizes[perm.index(n)] for n in range(len(perm)))
        elif node.op.name == "reshape":
            box = _beside_ones(node, starts, sizes)
            if box is None:
                if not _is_whole(source):
                    return None
                break
            starts, sizes = box
        else:
            return None
        node = source
    return program.homes.of[node], starts, part.with_(shape=sizes, layout=None)


def _beside_ones(
    node: Node, starts: tuple[Dim, ...], sizes: tuple[Dim, ...]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]] | None:
    """A part of a reshape as a part of its operand, where only axes of extent 1 differ."""
    old, new = node.args[0].tensor.shape, node.tensor.shape
    if [x for x in old if x != 1] != [x for x in new if x != 1]:
        return None
    if any(size != 1 for size, x in zip(sizes, new, strict=True) if x == 1):
        return None  # nothing of it
    kept = iter([n for n, x in enumerate(new) if x != 1])
    at = [None if x == 1 else next(kept) for x in old]
    return (
        tuple(0 if n is None else starts[n] for n in at),
        tuple(1 if n is None else sizes[n] for n in at),
    )


def _is_whole(node: Node) -> bool:
    """The value is a buffer, or all of one under other axes."""
    while node.op.name in ("reshape", "transpose"):
        node = node.args[0]
    return node.op.name not in VIEWS


def _tuple(node: Node, name: str) -> tuple[Dim, ...]:
    found = node.attrs.get(name)
    return found if isinstance(found, tuple) else ()


# ---- evaluation over units


def unit_axes(program: Program, access: Access) -> tuple[Axis, ...]:
    """Axes whose units are told apart: those of the processor level and outside of it, and
    deeper ones that the keys name."""
    outer = program.within(program.target.processor.level, access.site.mesh)
    named = program.axes_of(*access.keys)
    return (*outer, *(a for a in access.site.mesh.axes if a in named and a not in outer))


def waves(
    program: Program, axes: Sequence[Axis], site: Site, wave: int
) -> list[list[tuple[int, ...]]]:
    """Coordinates of all units in launch order, ``wave`` units of the processor level at a time
    with all deeper units of each."""
    level = program.target.processor.level
    outer = program.within(level, site.mesh)
    crds = sorted(
        cartesian(*(range(a.extent) for a in axes)),
        key=lambda c: sum(i * a.stride for i, a in zip(c, axes, strict=True) if a.level == level),
    )
    size = wave * prod(a.extent for a in axes if a not in outer)
    return [crds[n : n + size] for n in range(0, len(crds), size)]


def at_first(program: Program, site: Site, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """``dims`` at the first step of every enclosing loop, in terms of coordinates."""
    for loop in reversed(site.nest):
        start: dict[Sym, Dim] = {loop.var: program.bind(loop.start)}
        dims = tuple(substitute(x, start) for x in dims)
    return dims


@dataclass(frozen=True)
class Sharing:
    """Tiles that one wave touches in one step: how many, and by how many units each."""

    tiles: int
    least: int
    most: int


def sharing(program: Program, access: Access, wave: int) -> Sharing:
    """Distinct tiles of the first step of the first ``wave`` units, counted exactly.

    Raises :class:`Undecidable` where the keys depend on open extents.
    """
    axes = unit_axes(program, access)
    keys = at_first(program, access.site, access.keys)
    demand_closed(keys, axes)
    coords = [Coord(a.name, 0, a.extent - 1, axis=a) for a in axes]
    run = function(coords, keys)
    seen: dict[tuple[int, ...], int] = {}
    for crd in waves(program, axes, access.site, wave)[0]:
        key = run(*crd)
        seen[key] = seen.get(key, 0) + 1
    return Sharing(len(seen), min(seen.values()), max(seen.values()))


def demand_closed(keys: Sequence[Dim], axes: Sequence[Axis] | None = None) -> None:
    """Raise :class:`Undecidable` where an open extent decides a key, or a coordinate that is on
    none of ``axes``."""
    names = " ".join(dict.fromkeys(n for k in keys if (n := open_names(k))))
    if names:
        raise Undecidable(f"which tiles are touched depends on {names}; bind it with --dim")
    if axes is not None and (strange := {c.axis for c in coordinates(keys)} - {*axes}):
        wider = " and ".join(sorted(a.name for a in strange if a))
        raise Undecidable(f"{wider} is of a wider mesh; name a coordinate of the mesh in force")


def footprint(program: Program, access: Access) -> Figure:
    """Distinct bytes over all units and steps.

    Exact where tiles coincide or are disjoint (starts are multiples of sizes) or overlap
    along one axis; else the smaller of all tiles together and the whole buffer.
    """
    demand_closed(access.keys)
    total = access.size
    if not total:
        return Figure(0, EXACT)
    every = [*access.keys, *access.sizes]
    named = coordinates([s.expr() for s in closure(program.bind, every, access.site.nest)])
    wider = any(c.axis not in access.site.mesh.axes for c in named)  # not all of its units are here
    precision = UPPER if wider else EXACT
    for group in _groups(program, access):
        starts = [i for i in group if i < len(access.starts)]
        loose = [i for i in starts if not _aligned(access.starts[i], access.sizes[i])]
        if not loose and (count := _count(program, access, [access.keys[i] for i in group])):
            total *= count
            continue
        sizes = [access.sizes[i] for i in loose]
        seen = _values(program, access, [*(access.keys[i] for i in group), *sizes])
        if not loose:
            total *= len(seen)
        elif len(group) == 1:
            most = access.most[loose[0]]
            total = total * _union([(k[0], k[1]) for k in seen]) // most
        else:
            total, precision = total * len(seen), UPPER
    if total > access.whole:
        return Figure(access.whole, UPPER)
    return Figure(total, precision)


def _aligned(start: Dim, size: Dim) -> bool:
    if not isinstance(size, int) or size == 0:
        return False
    return start == 0 or bounds(start)[0] == bounds(start)[1] or multiple_of(start) % size == 0


def _union(parts: Sequence[tuple[int, int]]) -> int:
    """Length of the union of the intervals ``[s, s + size)``, given as (s, size)."""
    length, end = 0, 0
    for s, size in sorted(parts):
        length += max(0, s + size - max(s, end))
        end = max(end, s + size)
    return length


def _groups(program: Program, access: Access) -> list[list[int]]:
    """Key components that share a deciding symbol; the others vary independently."""
    sizes = (*access.sizes, *((1,) * len(access.places)))
    pairs = zip(access.keys, sizes, strict=True)
    held = [closure(program.bind, pair, access.site.nest) for pair in pairs]
    groups: list[tuple[set[Sym], list[int]]] = []
    for i, mine in enumerate(held):
        meet = [g for g in groups if g[0] & mine]
        joined = (mine.union(*(g[0] for g in meet)), sorted(sum((g[1] for g in meet), [i])))
        groups = [g for g in groups if g not in meet] + [joined]
    return [g for _, g in groups]


def _values(program: Program, access: Access, keys: Sequence[Dim]) -> set[tuple[int, ...]]:
    """Distinct values of ``keys`` together over all units and steps."""
    fixed = tuple(k for k in keys if isinstance(k, int))
    if len(fixed) == len(keys):
        return {fixed}
    return distinct(keys, *_around(program, access, keys))


def _count(program: Program, access: Access, keys: Sequence[Dim]) -> int | None:
    """How many those are, where one of ``keys`` alone varies and they need not be walked."""
    moving = [k for k in keys if not isinstance(k, int)]
    return how_many(moving[0], *_around(program, access, moving)) if len(moving) == 1 else None


def _around(program: Program, access: Access, keys: Sequence[Dim]
            ) -> tuple[list[Coord], list[tuple[Loop, Span3]]]:  # fmt: skip
    """The units and steps that decide ``keys``."""
    held = closure(program.bind, keys, access.site.nest)
    coords = sorted((s for s in held if isinstance(s, Coord)), key=lambda c: c.key)
    return coords, [(x, program.span(x)) for x in access.site.nest if x.var in held]
