"""Bank conflicts of copies, from the layouts: wavefronts that each access of a group takes.

In each clock every bank of the shared storage gives one word. A wide access goes in phases of
as many lanes as all banks together can serve (8 lanes of 16 bytes, 16 of 8); in a phase, words
of one bank wait for each other and equal words are one (CUDA C++ Programming Guide, compute
capability 5.x and later, shared memory). Counters of the hardware leave out the phases of wide
rows, so the wavefronts are counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm, prod
from typing import TypeAlias

from tilefoundry.ir.expr import multiple_of
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Swizzle
from tilefoundry.lower.notes import of_issues
from tilefoundry.targets.contract.copy import GivenRows, Side
from tilefoundry.targets.contract.place import Place
from tilefoundry.targets.contract.runs import Piece, Pieces, cut, held_pieces, run_of
from tilefoundry.targets.generic.instr.copy import Vectors
from tilefoundry.targets.target import Target
from tilefoundry.tir.plans import plan_of, side
from tilefoundry.tir.program import Issue, PrimFunc, View


@dataclass(frozen=True)
class Banks:
    """``count`` banks of ``width`` bytes each, and the ``lanes`` that access together."""

    count: int = 32
    width: int = 4
    lanes: int = 32

    @property
    def span(self) -> int:
        """Bytes of one wavefront."""
        return self.count * self.width


@dataclass(frozen=True)
class Wavefronts:
    """Of the worst access among those of an issue, ``bytes`` wide in each lane: what it takes,
    and what an access of that width takes without conflicts."""

    bytes: int
    worst: int
    ideal: int


def served(addresses: Sequence[int], bytes: int, banks: Banks = Banks()) -> int:
    """Wavefronts of one access: ``bytes`` at the address of each lane."""
    phase = max(1, min(banks.lanes, banks.span // bytes))
    words = -(-bytes // banks.width)
    total = 0
    for first in range(0, len(addresses), phase):
        lanes = addresses[first : first + phase]
        touched = {a // banks.width + n for a in lanes for n in range(words)}
        total += max(Counter(w % banks.count for w in touched).values())
    return total


def wavefronts(issue: Issue, mesh: Mesh, banks: Banks = Banks()) -> Wavefronts | None:
    """The worst access of a copy between registers and shared memory, or into it piece by
    piece, by the units of ``mesh``; None for what is no such copy, or goes by an engine.

    Where a tile starts at an address that is not a number, the worst of all starts counts.
    """
    found = accesses(issue, mesh, "smem", banks.lanes)
    if found is None:
        return None
    near, where, bytes, lists = found
    counted = _Count(where, near.buffer.offsets, bytes, banks)
    each = [(counted(lanes), -(-len(lanes) * bytes // banks.span)) for lanes in lists]
    return Wavefronts(bytes, *max(each)) if each else None


Accesses: TypeAlias = tuple[View, Place, int, Iterator[Sequence[int]]]


def accesses(issue: Issue, mesh: Mesh, storage: str, lanes: int) -> Accesses | None:
    """The side of a copy that lies in ``storage``, the bytes of one access, and the accesses of
    the units of ``mesh``, ``lanes`` together: offsets in bytes from the tile's first element,
    before a swizzle. None for what has no such side, or goes by an engine."""
    views = [v for v in (*issue.reads[:1], *issue.writes[:1]) if isinstance(v, View)]
    sides = [n for n, v in enumerate(views) if v.storage == storage]
    if len(views) != 2 or len(sides) != 1:
        return None
    plan = plan_of(issue, mesh)
    if not isinstance(plan, (Vectors, Pieces, GivenRows)):
        return None
    near, far = views[sides[0]], views[1 - sides[0]]
    end = side(near)
    where = end.place() if isinstance(end, Side) else end
    if not isinstance(where, Place):
        return None
    units = sorted(mesh.units("thread"))
    teams = [units[n : n + lanes] for n in range(0, len(units), lanes)]
    match plan:
        case Pieces():
            return near, where, plan.size, _dealt(plan, where, sides[0], len(units), lanes)
        case GivenRows():
            rows = (rows for team in teams for rows in plan.rows(team))
            return near, where, plan.row_bytes, ([_offset(where, at) for at in r] for r in rows)
        case _ if far.storage == "rmem" and far.is_whole:
            bytes = plan.write or plan.read
            return near, where, bytes, _held(far.buffer.type, where, bytes, teams)
        case _ if plan.pieces is not None:
            dealt = _dealt(plan.pieces, where, sides[0], len(units), lanes)
            return near, where, plan.pieces.size, dealt
        case _:
            return None


class _Count:
    """Wavefronts of one access by its lanes' offsets in bytes, each pattern counted once."""

    def __init__(self, where: Place, slots: Sequence[int], bytes: int, banks: Banks) -> None:
        self.swizzle: Swizzle | None = where.swizzle
        self.period = lcm(banks.span, where.swizzle.period if where.swizzle else 1)
        self.bytes, self.banks = bytes, banks
        self.starts = self._starts(where, slots)
        self.known: dict[tuple[int, ...], int] = {}

    def _starts(self, where: Place, slots: Sequence[int]) -> frozenset[int]:
        """Where element 0 may lie, within one period."""
        size = where.bits // 8
        if isinstance(where.base, int):
            inside = [where.base * size]
        else:
            step = gcd(max(1, multiple_of(where.base)) * size, self.period)
            inside = list(range(0, self.period, step))
        # without a swizzle a start only turns the banks
        if self.swizzle is None:
            return frozenset({0})
        return frozenset((s + i) % self.period for s in slots or (0,) for i in inside)

    def __call__(self, offsets: Sequence[int]) -> int:
        low = offsets[0] - offsets[0] % self.period
        key = tuple(o - low for o in offsets)
        if key not in self.known:
            self.known[key] = max(
                served(
                    [s + o if self.swizzle is None else self.swizzle(s + o) for o in key],
                    self.bytes,
                    self.banks,
                )
                for s in self.starts
            )
        return self.known[key]


def _coordinate(axis: Axis, unit: int) -> int:
    return (unit - axis.offset) // axis.stride % axis.extent


def _offset(where: Place, at: Sequence[int]) -> int:
    """Bytes from element 0 of the tile, before the swizzle."""
    total = sum(int(where.along(axis, i)) for axis, i in enumerate(at))  # type: ignore[arg-type]
    return total * where.bits // 8


def _held(
    held: TensorType, where: Place, bytes: int, teams: Sequence[Sequence[int]]
) -> Iterator[list[int]]:
    """Lane l's part in turns of ``bytes``: the plain copy from or to registers."""
    digits = held.layout.digits(held.shape) if held.layout else ()
    mine = [d for d in digits if d.axis.level == "thread"]
    steps = _turns(held, where, bytes)
    for team in teams:
        lanes: list[int] = []
        for unit in team:
            at = [0] * held.rank
            for d in mine:
                at[d.dim] += _coordinate(d.axis, unit) * int(d.inner)  # type: ignore[arg-type]
            lanes.append(_offset(where, at))
        for step in steps:
            yield [a + step for a in lanes]


def _turns(held: TensorType, where: Place, bytes: int) -> list[int]:
    """Offsets in bytes of a unit's accesses from its first element."""
    parts = held_pieces(held, where)
    if parts is None:  # modes that do not nest are moved element by element, as they are held
        layout = held.layout
        groups = (
            layout.groups(held.shape) if layout else [range(n, n + 1) for n in range(held.rank)]
        )
        modes = layout.modes if layout else held.shape
        owners = (layout.axes if layout else ()) or (None,) * len(modes)
        places: list[list[int]] = [[0] * held.rank]
        for dim, group in enumerate(groups):
            inner = 1
            for mode in reversed(group):
                extent = int(modes[mode])  # type: ignore[arg-type]
                if owners[mode] is None:
                    places = [_moved(p, dim, i * inner) for p in places for i in range(extent)]
                inner *= extent
        return [_offset(where, p) for p in places]
    _, outer = cut(run_of(parts), max(1, bytes * 8 // where.bits))
    offsets = [0]
    for p in outer:
        if p.unit is None:
            offsets = [o + i * _step(p, 0, where) for o in offsets for i in range(p.extent)]
    return offsets


def _moved(at: Sequence[int], dim: int, by: int) -> list[int]:
    return [x + by * (n == dim) for n, x in enumerate(at)]


def _step(p: Piece, place: int, where: Place) -> int:
    return int(p.steps[place]) * where.bits // 8  # type: ignore[arg-type]


def _dealt(
    plan: Pieces, where: Place, place: int, units: int, together: int
) -> Iterator[list[int]]:
    """Pieces dealt to units in turn: the lanes of a team take neighbouring ones."""
    extents = [(p.extent, _step(p, place, where)) for p in plan.outer]
    count = prod(e for e, _ in extents)
    for first in range(0, count, units):
        for start in range(first, min(first + units, count), together):
            lanes: list[int] = []
            for number in range(start, min(start + together, first + units, count)):
                offset = 0
                for extent, step in extents:
                    offset += number % extent * step
                    number //= extent
                lanes.append(offset)
            yield lanes


def banks_of(target: Target) -> Banks | None:
    """The banks of a target's shared storage; None where no document states them."""
    storage = target.storages.get("smem")
    if storage is None:
        return None
    facts = [target.stated(f"memory.{storage.memory}.{n}") for n in ("banks", "bank_width")]
    lanes = target.groups.get("warp")
    values = [f.value for f in (*facts, lanes) if f is not None and f.value is not None]
    return Banks(*(int(v) for v in values)) if len(values) == 3 else None


def notes(func: PrimFunc) -> list[str]:
    """A line for each copy whose accesses to shared memory are counted, in program order."""
    banks = banks_of(func.target)
    if banks is None:
        return []

    def said(issue: Issue, mesh: Mesh) -> str | None:
        found = wavefronts(issue, mesh, banks)
        if found is None:
            return None
        return f"access={found.bytes}B wavefronts={found.worst} ideal={found.ideal}"

    return of_issues(func, "banks", said)


__all__ = ["Banks", "Wavefronts", "accesses", "banks_of", "notes", "served", "wavefronts"]
