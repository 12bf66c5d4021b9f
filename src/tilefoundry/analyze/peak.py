"""Peak residency per storage: all values alive at a statement, operands and result included.

Counted per unit of the level whose units the capacity is for, and per single unit where a
storage has a limit of its own there (registers of a thread).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from tilefoundry.analyze.figure import EXACT, LOWER, Figure, Undecidable, joined, undecided
from tilefoundry.analyze.flow import VIEWS, Site
from tilefoundry.analyze.homes import Home, Homes
from tilefoundry.analyze.program import Program, types_of
from tilefoundry.analyze.sums import Largest
from tilefoundry.ir.expr import Dim, Expr, bounds, maximum, substitute
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.node import PARAM, Node
from tilefoundry.ir.types import TensorType
from tilefoundry.targets import Storage

MOST_CANDIDATES = 32
"""Symbolic sums kept as possible peaks; more cannot be compared without binding."""


MOST_NAMED = 8
"""Possible peaks that are written as ``max(...)``."""


@dataclass(frozen=True)
class Resident:
    """What one home takes of a storage: of one pool unit, and of each single unit."""

    home: Home
    pooled: Dim
    each: Dim


@dataclass(frozen=True)
class Called:
    """What a call takes of a storage while it runs, beside its arguments: as authored, and
    with lowering in place."""

    amount: Figure
    in_place: Figure


@dataclass
class Peak:
    """The peak of one storage. ``level`` is the pool's (None: the device); ``at`` the
    statement; ``held`` what is alive there, largest first. ``inside`` leaves the parameters
    out: they are the caller's."""

    storage: Storage
    level: str | None
    amount: Figure
    in_place: Figure
    inside: Called
    at: int = 0
    held: list[Resident] = field(default_factory=list)
    each: Figure | None = None
    """Most bytes of one unit of the storage's own level, where it has a limit."""
    each_held: list[Resident] = field(default_factory=list)


def residents(program: Program, homes: Homes, storage: Storage) -> list[Resident]:
    """Every home in ``storage`` with what it takes."""
    pool = storage.pool or storage.level
    out: list[Resident] = []
    for home in homes:
        pooled: Dim = 0
        each: Dim = 0
        if any(t.storage == storage.name for t in types_of(home.founder)):
            pooled, each = held(program, home, storage, pool)
        if pooled != 0:
            out.append(Resident(home, pooled * home.slots, each * home.slots))
    return out


def held(program: Program, home: Home, storage: Storage, pool: str | None) -> tuple[Dim, Dim]:
    """Bytes of ``home`` in one pool unit, and in one unit of the storage's own level.

    The value is divided over the axes it is split on. Units inside the pool that own a
    storage of their own and are not split hold a copy each. What a scope makes in device memory
    and does not give back is held once for each unit over which it is not split, as the kernel
    is lowered: nothing there orders what units write.
    """
    mesh = home.mesh
    types = [t for t in types_of(home.founder) if t.storage == storage.name]
    outer = program.within(pool, mesh)
    inner = [a for a in program.within(storage.level, mesh) if a not in outer]
    pooled: Dim = 0
    each: Dim = 0
    for type in types:
        split = {d.axis for d in type.digits}
        if pool is None:
            whole = program.nbytes(type) * prod(a.extent for a in _copies(program, home, split))
            pooled, each = pooled + whole, each + whole
            continue
        shared = storage.level == pool  # there, strides say where elements lie
        part = program.laid(type, outer) if shared else program.part(type, outer)
        one = part if shared else program.part(type, [*outer, *inner])
        copies = prod(a.extent for a in inner if a not in split)
        pooled, each = pooled + _granules(part, storage) * copies, each + one
    return pooled, each


def _copies(program: Program, home: Home, split: set[Axis]) -> frozenset[Axis]:
    """Axes along which units have a copy each of what lies in device memory."""
    made = [n for n in home.nodes if n.op.name not in VIEWS and n.op is not PARAM]
    varying = frozenset[Axis]().union(*(program.varies[n] for n in made)) - split
    founder = home.founder
    if founder.op is PARAM or any(n in program.flow.returned for n in home.nodes):
        return varying
    if founder.op.name == "reshard":  # one value, of which each unit stores its part
        split = split | {d.axis for d in founder.args[0].tensor.digits}
    inmost = program.target.levels[-1]
    return varying | {a for a in home.mesh.axes if a.level != inmost and a not in split}


def _granules(size: Dim, storage: Storage) -> Dim:
    unit = storage.granule.value if storage.granule else None
    return size if not unit else -((-size) // int(unit)) * int(unit)


def peaks(
    program: Program, calls: Mapping[Site, Sequence[Peak]], weights: Mapping[str, TensorType]
) -> list[Peak]:
    """The peak of every storage that the program or what it calls uses, nearest to the units
    first. ``weights`` of the callees are held throughout, beside the function's own."""
    out: list[Peak] = []
    for storage in reversed(list(program.target.storages.values())):
        inner = {s: p.inside for s, found in calls.items() for p in found if p.storage == storage}
        own = residents(program, program.homes, storage)
        less = residents(program, program.in_place, storage)
        held = [_whole(program, n, t) for n, t in weights.items() if t.storage == storage.name]
        if not own and not inner and not held:
            continue
        made = [r for r in own if r.home.founder.op is not PARAM]
        made_less = [r for r in less if r.home.founder.op is not PARAM]
        amounts = {s: c.amount for s, c in inner.items()}
        amounts_less = {s: c.in_place for s, c in inner.items()}
        inside = Called(
            _most(program, storage, made, amounts)[0],
            _most(program, storage, made_less, amounts_less)[0],
        )
        amount, at, alive = _most(program, storage, own + held, amounts)
        best, _, _ = _most(program, storage, less + held, amounts_less)
        peak = Peak(storage, storage.pool or storage.level, amount, best, inside, at, alive)
        if storage.level and storage.unit_limit and any(_single(storage, r) for r in own):
            _per_unit(program, peak, own)
        for fuller in (p for found in calls.values() for p in found if p.storage == storage):
            if fuller.each is None or fuller.each.value is None:
                continue
            each = program.most(fuller.each.value)
            if peak.each is None or _more(each, peak.each):
                peak.each, peak.each_held = each, fuller.each_held
        out.append(peak)
    return out


def _most(
    program: Program,
    storage: Storage,
    found: list[Resident],
    inner: Mapping[Site, Figure],
) -> tuple[Figure, int, list[Resident]]:
    """The sweep of ``found``, each call taking what ``inner`` says while it runs."""
    running: list[Resident] = []
    for site, figure in inner.items():
        if figure.value is None:
            return figure, 0, []
        own = [r for r in found if site.node in r.home.nodes and r.home.first == site.at]
        result: Dim = 0
        for r in own:  # what the callee returns is counted as its result already
            result = result + r.pooled
        copies = prod(a.extent for a in program.distinct(site)) if storage.level is None else 1
        more = maximum(figure.value * copies - result, 0)
        if more != 0:
            home = Home(site.node, 1, site.at, site.at)
            running.append(Resident(home, more, more))
    return sweep(program, found + running, lambda r: r.pooled)


def _whole(program: Program, name: str, type: TensorType) -> Resident:
    """A weight that only callees name."""
    size = program.nbytes(type)
    node = Node(PARAM, (), {}, type, None, Mesh(), name)
    home = Home(node, 1, 0, program.flow.end, nodes=[node])
    return Resident(home, size, size)


def _single(storage: Storage, r: Resident) -> bool:
    return bool(r.home.mesh.at(storage.level or ""))


def _per_unit(program: Program, peak: Peak, found: list[Resident]) -> None:
    """The fullest single unit: units of different roles hold different values."""
    level = str(peak.storage.level)
    meshes = {r.home.mesh.at(level): r.home.mesh for r in found}
    sets = {axes: frozenset(mesh.units(level)) for axes, mesh in meshes.items()}
    best: tuple[Figure, list[Resident]] | None = None
    for units in _roles(sets.values()):
        mine = [
            r for r in found if sets[r.home.mesh.at(level)] >= units and _single(peak.storage, r)
        ]
        amount, _, alive = sweep(program, mine, lambda r: r.each)
        if best is None or _more(amount, best[0]):
            best = amount, alive
    if best:
        peak.each, peak.each_held = best


def _roles(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """The coarsest sets of units that no given set cuts."""
    parts: list[frozenset[int]] = []
    for new in dict.fromkeys(s for s in sets if s):
        cut: list[frozenset[int]] = []
        rest = new
        for old in parts:
            cut += [x for x in (old & new, old - new) if x]
            rest = rest - old
        parts = cut + ([rest] if rest else [])
    return parts


def _more(a: Figure, b: Figure) -> bool:
    return isinstance(a.value, int) and isinstance(b.value, int) and a.value > b.value


def sweep(
    program: Program, found: list[Resident], size: Callable[[Resident], Dim]
) -> tuple[Figure, int, list[Resident]]:
    """The largest sum over statements and the steps of their loops, where it is reached
    first, and what is alive there, in sizes of that step."""
    if not found:
        return Figure(0, EXACT), 0, []
    edges: dict[int, Dim] = {}
    for r in found:
        n: Dim = size(r)
        edges[r.home.first] = edges.get(r.home.first, 0) + n
        edges[r.home.last + 1] = edges.get(r.home.last + 1, 0) - n
    sums: dict[Dim, tuple[int, Largest]] = {}
    now: Dim = 0
    for at in sorted(edges):
        now = now + edges[at]
        try:
            most = program.largest(now)
        except Undecidable as why:
            return undecided(why.reason), 0, []
        assert most.figure.value is not None
        sums.setdefault(most.figure.value, (at, most))
    kept = _largest(list(sums))
    precision = joined(sums[n][1].figure.precision for n in kept)
    if 1 < len(kept) <= MOST_NAMED:
        return Figure(maximum(*kept), precision), 0, []
    if len(kept) != 1:
        reason = "which moment is fullest depends on open extents; bind them with --dim"
        return undecided(reason), 0, []
    at, most = sums[kept[0]]
    alive = [_at(program, r, most) for r in found if r.home.first <= at <= r.home.last]
    sizes = {r: n for r in alive if isinstance(n := size(r), int)}
    if len(sizes) == len(alive):
        alive.sort(key=lambda r: -sizes[r])
    return Figure(kept[0], precision), at, alive


def _at(program: Program, r: Resident, most: Largest) -> Resident:
    """``r`` at the step that ``most`` is of; at its own largest if no step is known."""

    def then(amount: Dim) -> Dim:
        found = program.most(substitute(amount, most.at)).value
        return 0 if found is None else found

    return Resident(r.home, then(r.pooled), then(r.each))


def _largest(sums: list[Dim]) -> list[Dim]:
    """Those that no other is sure to reach."""
    known = [s for s in sums if isinstance(s, int)]
    if len(known) == len(sums):
        return [max(known, default=0)]
    kept: list[Dim] = []
    for new in sums:
        if any(bounds(old - new)[0] >= 0 for old in kept):
            continue
        kept = [old for old in kept if bounds(new - old)[0] < 0] + [new]
        if len(kept) > MOST_CANDIDATES:
            return kept
    return kept


def fits(amount: Figure, capacity: int | float | None) -> str:
    """``yes``, ``no`` or ``undecided``."""
    if amount.value is None or capacity is None:
        return "undecided"
    if isinstance(amount.value, Expr):
        lo, hi = bounds(amount.value)
        return "yes" if hi <= capacity else "no" if lo > capacity else "undecided"
    if amount.precision == LOWER and amount.value <= capacity:
        return "undecided"
    return "yes" if amount.value <= capacity else "no"
