"""Reuse windows: bytes touched between one use of a tile and its next, against the cache.

All units of a wave step together: at each step every access touches its tiles; waves
follow each other. Within a step, tiles that several units touch are reused across space;
across steps of a loop, or across waves, tiles that come again are reused across time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tilefoundry.analyze.access import READ
from tilefoundry.analyze.figure import UPPER, ZERO, Figure, Undecidable, undecided
from tilefoundry.analyze.program import Program
from tilefoundry.analyze.sums import closure
from tilefoundry.analyze.tiles import (
    Access,
    Sharing,
    demand_closed,
    sharing,
    unit_axes,
    waves,
)
from tilefoundry.analyze.trips import count, visitor
from tilefoundry.ir.expr import Dim, Expr, Sym, bounds, maximum, minimum, substitute, symbols
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.node import Loop

MOST_VISITS = 1 << 18
"""Tile touches that one reuse question may enumerate."""


@dataclass(frozen=True)
class Slots:
    """What is touched slot by slot: pieces by number, ``weights`` the bytes of each, ``own`` the
    numbers of each access. ``turned``: in some slots inner loops walk another way than in
    others."""

    touched: list[set[int]]
    weights: list[int]
    own: Mapping[Access, range]
    turned: bool


@dataclass(frozen=True)
class Pieces:
    """One slot's tiles as a piece: its ``keys``, and how many tiles it is of. Of each of
    ``spreads``, (key of the first tile, of the last, tiles between them), the inner loop walks
    from one to the other, whichever way."""

    keys: tuple[Dim, ...]
    count: int
    spreads: tuple[tuple[int, int, int], ...] = ()

    def tiles(self, key: Sequence[int]) -> int:
        """Distinct tiles of the piece with these values."""
        return self.count * prod(n if key[a] != key[b] else 1 for a, b, n in self.spreads)

    def are_apart(self, found: Collection[tuple[int, ...]]) -> bool:
        """Pieces are the same or share no tile."""
        for a, b, _ in self.spreads:
            ends = sorted({(key[a], key[b]) for key in found})
            if any(low <= high for (_, high), (low, _) in pairwise(ends)):
                return False
        return True


@dataclass(frozen=True)
class Window:
    """One way in which a buffer's tiles are used again.

    ``time`` names the loop (or ``wave``) over which, ``space`` the mesh axes across which
    (those that do not decide the tile; all of them where all do);
    ``window`` is the largest. ``hit`` estimates, in percent, which part of the bytes used
    again the cache still has, if it keeps its capacity's part of each window.
    """

    access: Access
    time: str
    space: str
    shared: Sharing | None
    holds: Figure
    window: Figure
    hit: int | None = None


def windows(
    program: Program, accesses: Sequence[Access], wave: int, capacity: int | None
) -> list[Window]:
    """Every way in which tiles that are read are used again, access by access."""
    out: list[Window] = []
    every = _Touched(program, accesses, wave)
    for access in accesses:
        if access.move.way != READ:
            continue
        try:
            found = sharing(program, access, wave)
        except Undecidable as why:
            no = undecided(why.reason)
            out.append(Window(access, "undecided", "undecided", None, no, no))
            continue
        out.append(_in_space(every, access, found))
        for ask in (_invariant, _in_time):
            try:
                made = ask(every, access, capacity)
            except Undecidable as why:
                unknown = undecided(why.reason)
                made = Window(access, _outer_name(access), "none", None, unknown, unknown)
            if made:
                out.append(made)
    return out


class _Touched:
    """What all accesses together touch, counted once for those of one nest of loops."""

    def __init__(self, program: Program, accesses: Sequence[Access], wave: int) -> None:
        self.program = program
        self.accesses = accesses
        self.wave = wave
        self._steps: dict[tuple[Loop, ...], Figure] = {}
        self._slots: dict[tuple[Loop, ...], Slots | Undecidable] = {}

    def step(self, nest: tuple[Loop, ...]) -> Figure:
        """Distinct bytes of one step of a wave, all accesses of the same loop body."""
        if nest not in self._steps:
            total = ZERO
            for other in self.accesses:
                if other.site.nest == nest:
                    found = sharing(self.program, other, self.wave)
                    later = other.first.value != other.size  # a later step touches more
                    most = Figure(found.tiles * other.size, UPPER)
                    total = total + (most if later else _tiles(found, other))
            self._steps[nest] = total
        return self._steps[nest]

    def slots(self, outer: tuple[Loop, ...]) -> Slots:
        """What is touched slot by slot of the loops ``outer``; may raise ``Undecidable``."""
        if outer not in self._slots:
            near = [x for x in self.accesses if x.site.nest[: len(outer)] == outer]
            try:
                self._slots[outer] = _slots(self.program, near, outer, self.wave)
            except Undecidable as why:
                self._slots[outer] = why
        found = self._slots[outer]
        if isinstance(found, Undecidable):
            raise found
        return found


def _in_space(every: _Touched, access: Access, found: Sharing) -> Window:
    program = every.program
    holds = _tiles(found, access)
    if found.most == 1:
        return Window(access, "none", "none", found, holds, Figure(0))
    axes = [a for a in unit_axes(program, access) if a.extent > 1]
    decide = program.axes_of(*access.keys)
    axes = [a for a in axes if a not in decide] or axes
    named = ",".join(f"{a.level}.{a.name}" for a in axes)
    return Window(access, "none", named, found, holds, every.step(access.site.nest))


def _tiles(found: Sharing, access: Access) -> Figure:
    """Bytes of the distinct tiles of the first step."""
    value = access.first.value
    assert isinstance(value, int)
    return Figure(found.tiles * value, access.first.precision)


def _invariant(every: _Touched, access: Access, capacity: int | None) -> Window | None:
    """The same tile again at the next step of the innermost loop."""
    program = every.program
    nest = access.site.nest
    if not nest or nest[-1].var in closure(program.bind, access.keys, nest):
        return None
    if bounds(count(*program.span(nest[-1])))[1] <= 1:
        return None
    held = sharing(program, access, every.wave)
    window = every.step(nest)
    return Window(
        access,
        nest[-1].var.name,
        "none",
        None,
        _tiles(held, access),
        window,
        _hit({window.value: 1}, capacity) if isinstance(window.value, int) else None,
    )


def _hit(windows: Mapping[int, int], capacity: int | None) -> int | None:
    """Percent of the bytes used again (by window size) that a cache of ``capacity`` keeps."""
    if capacity is None:
        return None
    kept = sum(n * min(1.0, capacity / size) for size, n in windows.items())
    return int(100 * kept / sum(windows.values()))


def _outer_name(access: Access) -> str:
    outer = access.site.nest[:-1]
    return outer[-1].var.name if outer else "wave"


def _in_time(every: _Touched, access: Access, capacity: int | None) -> Window | None:
    """The same tile again at a later step of the outer loops, or in a later wave."""
    all_slots = every.slots(access.site.nest[:-1])
    slots, weights = all_slots.touched, all_slots.weights
    if len(slots) < 2:
        return None
    own = all_slots.own[access]
    mine = [{piece for piece in slot if piece in own} for slot in slots]
    pairs: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    for at, pieces in enumerate(mine):
        for piece in pieces:
            if piece in last:
                pair = (last[piece], at)
                pairs[pair] = pairs.get(pair, 0) + weights[piece]
            last[piece] = at
    if not pairs:
        return None
    sizes = {pair: _between(all_slots, *pair) for pair in pairs}
    holds = max(_bytes(pieces, weights) for pieces in mine)
    window = Figure(max(sizes.values()), UPPER)
    again: dict[int, int] = {}
    for pair, n in pairs.items():
        again[sizes[pair]] = again.get(sizes[pair], 0) + n
    hit = _hit(again, capacity)
    name = _outer_name(access)
    return Window(access, name, "none", None, Figure(holds, access.precision), window, hit)


def _slots(
    program: Program, accesses: Sequence[Access], outer: tuple[Loop, ...], wave: int
) -> Slots:
    """What is touched in each slot (wave by wave, step by step of ``outer``), and the bytes
    of each piece: a tile, or all tiles of the loops inside of the slot together."""
    slots: list[set[int]] = []
    weights: list[int] = []
    own: dict[Access, range] = {}
    visits = 0
    turned = False
    told = f"reuse takes more than {MOST_VISITS} tile visits to tell"
    if sum(_least_visits(program, access, outer) for access in accesses) > MOST_VISITS:
        raise Undecidable(told)
    for access in accesses:
        axes = _walking(program, access)
        coords = [Coord(a.name, 0, a.extent - 1, axis=a) for a in axes]
        turned |= _turns(program, access, outer)
        folded = _folded(program, access, outer)
        pieces = folded or Pieces(access.keys, 1)
        keys = pieces.keys
        first_own = len(weights)
        numbers: dict[tuple[int, ...], int] = {}
        steps = [(x, program.span(x)) for x in outer]
        inner = [] if folded else [(x, program.span(x)) for x in access.site.nest[len(outer) :]]
        demand_closed([*keys, *(x for _, span in (*steps, *inner) for x in span)], axes)
        run = visitor(coords, steps, inner, keys)
        base = 0
        for units in waves(program, axes, access.site, wave):
            longest = 0
            for crd in units:
                found = run(*crd)
                visits += sum(map(len, found))
                if visits > MOST_VISITS:
                    raise Undecidable(told)
                longest = max(longest, len(found))
                while len(slots) < base + len(found):
                    slots.append(set())
                for slot, tiles in zip(slots[base:], found, strict=False):
                    for key in tiles:
                        if key not in numbers:
                            numbers[key] = len(weights)
                            weights.append(access.size * pieces.tiles(key))
                        slot.add(numbers[key])
            base += longest
        own[access] = range(first_own, len(weights))
        if not pieces.are_apart(numbers):
            raise Undecidable("the tiles of one step and of another are neither the same nor apart")
    return Slots(slots, weights, own, turned)


def _walking(program: Program, access: Access) -> tuple[Axis, ...]:
    """The axes whose units touch other tiles, or in other steps."""
    axes = unit_axes(program, access)
    walks = program.axes_of(*(x for loop in access.site.nest for x in program.span(loop)))
    return axes + tuple(a for a in access.site.mesh.axes if a in walks and a not in axes)


def _least_visits(program: Program, access: Access, outer: tuple[Loop, ...]) -> float:
    """Tile touches that are enumerated at least: one for each unit and slot."""
    trips = [bounds(count(*program.span(loop)))[0] for loop in access.site.nest]
    slots = prod(max(0, n) for n in trips[: len(outer)])
    return slots * prod(a.extent for a in _walking(program, access)) * all(n > 0 for n in trips)


def _inside(program: Program, access: Access, outer: tuple[Loop, ...]) -> list[tuple[Dim, Dim]]:
    """Each key at the first step of the inner loops, and what these add to it."""
    inner = access.site.nest[len(outer) :]
    first: dict[Sym, Dim] = {x.var: program.bind(x.start) for x in inner}
    begun = [substitute(key, first) for key in access.keys]
    return [(at, key - at) for at, key in zip(begun, access.keys, strict=True)]


def _turns(program: Program, access: Access, outer: tuple[Loop, ...]) -> bool:
    """What the inner loops add to a key differs from slot to slot, or from unit to unit."""
    held = {x.var for x in access.site.nest[len(outer) :]}
    return any(not symbols(rest) <= held for _, rest in _inside(program, access, outer))


def _folded(program: Program, access: Access, outer: tuple[Loop, ...]) -> Pieces | None:
    """One slot's tiles as a piece; None where the inner loops' bounds depend on the slot or the
    unit, or a key is not linear in the one inner loop that walks it: then pieces are single tiles.
    """
    nest = access.site.nest
    inner = nest[len(outer) :]
    held: set[Sym] = {x.var for x in inner}
    if any(symbols(x) for loop in inner for x in program.span(loop)):
        return None
    keys: list[Dim] = []
    own: list[Dim] = []
    walked: list[tuple[Loop, Dim]] = []
    for outside, rest in _inside(program, access, outer):
        loops = [x for x in inner if x.var in symbols(rest)]
        if symbols(rest) <= held:
            own += [rest] if rest != 0 else []
            keys.append(outside)
        elif len(loops) == 1 and _linear(rest, loops[0].var):
            walked.append((loops[0], outside + rest))
        else:
            return None
    through = [loop for loop, _ in walked]
    if len(set(through)) < len(through) or any(
        loop.var in closure(program.bind, own, nest) for loop in through
    ):
        return None
    spreads: list[tuple[int, int, int]] = []
    for loop, key in walked:
        start, stop, step = program.span(loop)
        steps = count(start, stop, step)
        if not isinstance(steps, int) or steps < 1:
            return None
        ends = [substitute(key, {loop.var: at}) for at in (start, start + (steps - 1) * step)]
        spreads.append((len(keys), len(keys) + 1, steps))
        keys += [minimum(*ends), maximum(*ends)]
    loops = [(x, program.span(x)) for x in inner if x.var in closure(program.bind, own, nest)]
    tiles = 1
    for _, span in loops:
        tiles *= max(1, int(min(bounds(count(*span))[1], MOST_VISITS + 1)))
    if tiles > MOST_VISITS:
        raise Undecidable(f"reuse takes more than {MOST_VISITS} tile visits to tell")
    made = len(set(visitor([], (), loops, own)()[0])) if own else 1
    return Pieces(tuple(keys), made, tuple(spreads))


def _linear(x: Dim, var: Sym) -> bool:
    """``x`` is a factor times ``var`` and a rest, neither of which depends on ``var``."""
    terms = x.terms if isinstance(x, Expr) else ()
    return all(
        sum(atom == var for atom in mono) <= 1
        and not any(var in symbols(atom.expr()) for atom in mono if atom != var)
        for mono, _ in terms
    )


def _between(all_slots: Slots, a: int, b: int) -> int:
    """Bytes touched from a use in slot ``a`` to the next in slot ``b``, at most.

    At a common point of the inner loops: what both slots touch and all between counts
    whole; of what only one of them touches, its tail or head, so no more than the larger. Where
    the loops turn, a tile at the beginning of one slot may be at the end of the other: both.
    """
    slots, weights = all_slots.touched, all_slots.weights
    whole = (slots[a] & slots[b]).union(*slots[a + 1 : b])
    tail, head = _bytes(slots[a] - whole, weights), _bytes(slots[b] - whole, weights)
    return _bytes(whole, weights) + (tail + head if all_slots.turned else max(tail, head))


def _bytes(pieces: Iterable[int], weights: Sequence[int]) -> int:
    return sum(map(weights.__getitem__, pieces))
