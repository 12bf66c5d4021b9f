"""Reuse windows: bytes touched between one use of a tile and its next, against the cache.

All units of a wave step together: at each step every access touches its tiles; waves
follow each other. Within a step, tiles that several units touch are reused across space;
across steps of a loop, or across waves, tiles that come again are reused across time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilefoundry.analyze.figure import UPPER, Figure, Undecidable, undecided
from tilefoundry.analyze.program import Program
from tilefoundry.analyze.tiles import (
    Access,
    Sharing,
    closure,
    demand_closed,
    ordered,
    sharing,
    unit_axes,
)
from tilefoundry.analyze.traffic import READ
from tilefoundry.analyze.trips import count, visitor
from tilefoundry.ir.expr import Dim, Sym, bounds, substitute, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import Loop

MOST_VISITS = 1 << 18
"""Tile touches that one reuse question may enumerate."""

Chunk = tuple[Access, tuple[int, ...]]


@dataclass(frozen=True)
class Window:
    """One way in which a buffer's tiles are used again.

    ``time`` names the loop (or ``wave``) over which, ``space`` the mesh axes across which;
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
    for access in accesses:
        if access.move.way != READ:
            continue
        try:
            found = sharing(program, access, wave)
        except Undecidable as why:
            no = undecided(why.reason)
            out.append(Window(access, "undecided", "undecided", None, no, no))
            continue
        out.append(_in_space(program, access, accesses, found, wave))
        for ask in (_invariant, _in_time):
            try:
                made = ask(program, access, accesses, wave, capacity)
            except Undecidable as why:
                unknown = undecided(why.reason)
                made = Window(access, _outer_name(access), "none", None, unknown, unknown)
            if made:
                out.append(made)
    return out


def _in_space(
    program: Program, access: Access, every: Sequence[Access], found: Sharing, wave: int
) -> Window:
    holds = Figure(found.tiles * access.size)
    if found.most == 1:
        return Window(access, "none", "none", found, holds, Figure(0))
    axes = [a for a in unit_axes(program, access) if a.extent > 1]
    named = ",".join(f"{a.level}.{a.name}" for a in axes)
    return Window(access, "none", named, found, holds, _step(program, access, every, wave))


def _step(program: Program, access: Access, every: Sequence[Access], wave: int) -> Figure:
    """Distinct bytes of one step of a wave, all accesses of the same loop body."""
    total = 0
    for other in every:
        if other.site.nest == access.site.nest:
            total += sharing(program, other, wave).tiles * other.size
    return Figure(total)


def _invariant(
    program: Program,
    access: Access,
    every: Sequence[Access],
    wave: int,
    capacity: int | None,
) -> Window | None:
    """The same tile again at the next step of the innermost loop."""
    nest = access.site.nest
    if not nest or nest[-1].var in closure(program, access.keys, nest):
        return None
    if bounds(count(*_span(program, nest[-1])))[1] <= 1:
        return None
    held = sharing(program, access, wave)
    window = _step(program, access, every, wave)
    return Window(
        access,
        nest[-1].var.name,
        "none",
        None,
        Figure(held.tiles * access.size),
        window,
        _hit({window.value: 1}, capacity) if isinstance(window.value, int) else None,
    )


def _hit(windows: Mapping[int, int], capacity: int | None) -> int | None:
    """Percent of the bytes used again (by window size) that a cache of ``capacity`` keeps."""
    if capacity is None:
        return None
    kept = sum(n * min(1.0, capacity / size) for size, n in windows.items())
    return int(100 * kept / sum(windows.values()))


def _span(program: Program, loop: Loop) -> tuple[Dim, Dim, Dim]:
    return program.bind(loop.start), program.bind(loop.stop), program.bind(loop.step)


def _outer_name(access: Access) -> str:
    outer = access.site.nest[:-1]
    return outer[-1].var.name if outer else "wave"


def _in_time(
    program: Program,
    access: Access,
    every: Sequence[Access],
    wave: int,
    capacity: int | None,
) -> Window | None:
    """The same tile again at a later step of the outer loops, or in a later wave."""
    outer = access.site.nest[:-1]
    near = [x for x in every if x.site.nest[: len(outer)] == outer]
    slots, weights = _slots(program, near, outer, wave)
    if len(slots) < 2:
        return None
    pairs: dict[tuple[int, int], int] = {}
    last: dict[Chunk, int] = {}
    for at, slot in enumerate(slots):
        for chunk in slot:
            if chunk[0] is not access:
                continue
            if chunk in last:
                pair = (last[chunk], at)
                pairs[pair] = pairs.get(pair, 0) + weights[chunk]
            last[chunk] = at
    if not pairs:
        return None
    sizes = {pair: _between(slots, weights, *pair) for pair in pairs}
    holds = max(sum(weights[c] for c in slot if c[0] is access) for slot in slots)
    window = Figure(max(sizes.values()), UPPER)
    again: dict[int, int] = {}
    for pair, n in pairs.items():
        again[sizes[pair]] = again.get(sizes[pair], 0) + n
    hit = _hit(again, capacity)
    name = _outer_name(access)
    return Window(access, name, "none", None, Figure(holds), window, hit)


def _slots(
    program: Program, accesses: Sequence[Access], outer: tuple[Loop, ...], wave: int
) -> tuple[list[set[Chunk]], Mapping[Chunk, int]]:
    """What is touched in each slot (wave by wave, step by step of ``outer``), and the bytes
    of each piece: a tile, or all tiles of the loops inside of the slot together."""
    slots: list[set[Chunk]] = []
    weights: dict[Chunk, int] = {}
    visits = 0
    for access in accesses:
        axes = unit_axes(program, access)
        coords = [Coord(a.name, 0, a.extent - 1, axis=a) for a in axes]
        spans = [_span(program, x) for x in outer]
        keys, factor = _folded(program, access, outer)
        demand_closed([*keys, *(x for span in spans for x in span)])
        run = visitor(coords, outer, spans, keys)
        base = 0
        units = ordered(axes, program.target.processor.level)
        for first in range(0, len(units), wave):
            longest = 0
            for crd in units[first : first + wave]:
                steps = run(*crd)
                visits += len(steps)
                if visits > MOST_VISITS:
                    raise Undecidable(f"reuse takes more than {MOST_VISITS} tile visits to tell")
                longest = max(longest, len(steps))
                while len(slots) < base + len(steps):
                    slots.append(set())
                for j, key in enumerate(steps):
                    chunk = (access, key)
                    slots[base + j].add(chunk)
                    weights[chunk] = access.size * factor
            base += longest
    return slots, weights


def _folded(
    program: Program, access: Access, outer: tuple[Loop, ...]
) -> tuple[tuple[Dim, ...], int]:
    """Keys of one slot's piece, and how many tiles the inner loops make of it.

    The inner loops must not depend on the slot or the unit: then every slot's piece is the
    same number of tiles, told apart by the rest of the key.
    """
    nest = access.site.nest
    inner = nest[len(outer) :]
    held: set[Sym] = {x.var for x in inner}
    keys: list[Dim] = []
    own: list[Dim] = []
    for key in access.keys:
        mine = closure(program, [key], nest)
        if not mine & held:
            keys.append(key)
        elif mine <= held:
            own.append(key)
        else:
            keys.append(_split(program, key, inner))
            own.append(key)
    if not own:
        return tuple(keys), 1
    loops = [x for x in inner if x.var in closure(program, own, nest)]
    fixed = [substitute(k, _zeros(k, held)) for k in own]
    spans = [_span(program, x) for x in loops]
    demand_closed([x for span in spans for x in span])
    tiles = 1
    for span in spans:
        tiles *= max(1, int(min(bounds(count(*span))[1], MOST_VISITS + 1)))
    if tiles > MOST_VISITS:
        raise Undecidable(f"reuse takes more than {MOST_VISITS} tile visits to tell")
    return tuple(keys), len(set(visitor([], loops, spans, fixed)()))


def _zeros(key: Dim, held: set[Sym]) -> dict[Sym, Dim]:
    return {s: 0 for s in symbols(key) if s not in held}


def _split(program: Program, key: Dim, inner: Sequence[Loop]) -> Dim:
    """A start that is a sum of a slot's part and an inner loop's: the slot's part."""
    zero: dict[Sym, Dim] = {x.var: program.bind(x.start) for x in inner}
    outside = substitute(key, zero)
    rest = key - outside
    held = {x.var for x in inner}
    spans = [x for loop in inner for x in _span(program, loop)]
    if not symbols(rest) <= held or any(symbols(x) for x in spans):
        raise Undecidable("the tiles of inner loops depend on the outer step")
    return outside


def _between(slots: list[set[Chunk]], weights: Mapping[Chunk, int], a: int, b: int) -> int:
    """Bytes touched from a use in slot ``a`` to the next in slot ``b``, at most.

    At a common point of the inner loops: what both slots touch and all between counts
    whole; of what only one of them touches, its tail or head, so no more than the larger.
    """
    whole: set[Chunk] = slots[a] & slots[b]
    whole = whole.union(*slots[a + 1 : b])
    tail = sum(weights[c] for c in slots[a] - whole)
    head = sum(weights[c] for c in slots[b] - whole)
    return sum(weights[c] for c in whole) + max(tail, head)
