"""Device memory: views stay inside their buffers, blocks write apart, outputs are whole.

What the digits of indices do not prove is enumerated: windows over all blocks, over the loops that
move them, and over the coordinates of threads and lanes in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as cartesian
from math import prod

from tilefoundry.ir.expr import Dim, Expr, Sym, extremes, symbols
from tilefoundry.tir.program import Buffer, Issue, View
from tilefoundry.verify.finding import Findings, Place
from tilefoundry.verify.numbers import Compiler
from tilefoundry.verify.roles import UNIT, Layout, inner_levels
from tilefoundry.verify.rounds import Epoch, Rounds
from tilefoundry.verify.tiling import tiles, together
from tilefoundry.verify.touch import Box, meet, partner, without
from tilefoundry.verify.walker import Owner, Placed, Walker, placed_in, symbols_of
from tilefoundry.verify.windows import TOGETHER, WINDOWS, Written, windows_of


def check(layout: Layout, findings: Findings, compiler: Compiler) -> None:
    """Judge every view of the kernel."""
    placed = list(placed_in(layout))
    walker = Walker(layout, compiler)
    touched: dict[Buffer, list[tuple[Placed, View, bool]]] = {}
    for item in placed:
        issue = item.site.stmt
        assert isinstance(issue, Issue)
        for number, view in enumerate((*issue.reads, *issue.writes)):
            if isinstance(view, View):
                _bounds(walker, item, view, findings)
                if view.storage == "gmem":
                    uses = touched.setdefault(view.buffer, [])
                    uses.append((item, view, number >= len(issue.reads)))
    for buffer, uses in touched.items():
        for item in (i for i, _, write in uses if write and buffer.role == "in"):
            findings.add("parameter-written", item.site.place, None, f"{buffer.name} belongs to "
                         "the caller", "write to a buffer of its own")  # fmt: skip
        if any(write for _, _, write in uses):
            _buffer(layout, walker, buffer, uses, findings)
    for param in layout.func.params:
        never = not any(write for _, _, write in touched.get(param, ()))
        if param.role == "out" and never and prod(param.shape):
            _unwritten(param, None, 0, findings)


def _buffer(layout: Layout, walker: Walker, buffer: Buffer,
            uses: list[tuple[Placed, View, bool]], findings: Findings) -> None:  # fmt: skip
    """One buffer in device memory that the kernel writes."""
    out = buffer.role == "out"
    back = buffer.role == "work" and not all(write for _, _, write in uses)
    shown = [tiles(layout, i.around, v, partner(i.site.stmt, v)) for i, v, _ in uses]  # type: ignore[arg-type]
    written = [t for t, (_, _, write) in zip(shown, uses, strict=True) if write]
    covered = together(t for t in written if t)
    if out and None not in written and covered[1] and covered[0] < prod(buffer.shape):
        place = next(i.site.place for i, _, write in uses if write)
        _unwritten(buffer, place, covered[0], findings)
        out = False
    alone = None not in shown and len({t.owner for t in shown if t is not None}) == 1
    if alone and (not (out or back) or covered[0] >= prod(buffer.shape)):
        return
    windows: list[Written] = []
    for item, view, write in uses:
        more = windows_of(walker, item, view, write)
        if more is None or len(windows) + len(more) > TOGETHER:
            if not alone and _shared_by_cores(layout, uses):
                findings.add(
                    "sync-undecided", item.site.place, None,
                    f"cores write and read {buffer.name}, in too many places to look at",
                    "write it in one function and read it in another",
                )  # fmt: skip
            aim = "written by one block each" + (", and all of them" if out else "")
            findings.note(f'undecided buffer={buffer.name} property="elements {aim}"')
            return
        windows += more
    _apart(windows, walker.rounds, findings)
    if out:
        _whole(buffer, windows, findings)
    if back:
        _read_back(buffer, windows, findings)


def _shared_by_cores(layout: Layout, uses: list[tuple[Placed, View, bool]]) -> bool:
    """Nothing was derived to order what several cores do."""
    alone = len(layout.blocks) == 1 or inner_levels(layout.func)[-1] == UNIT
    return not alone and not all(write for _, _, write in uses)


# ---- bounds


def _bounds(walker: Walker, item: Placed, view: View, findings: Findings) -> None:
    """The view stays in its buffer (or says what it reads outside), the slot in its ring."""
    claims: list[tuple[Dim, int, str]] = [(view.slot, view.buffer.slots, "slot")]
    if view.fill is None:
        claims += [(x, e, f"axis {n}") for n, (x, e)
                   in enumerate(zip(view.index, view.buffer.shape, strict=True))]  # fmt: skip
    if 0 in view.shape:
        return
    open_claims = []
    for x, extent, name in claims:
        low, high = extremes(x)
        if low < 0 or high >= extent:
            open_claims.append((x, extent, name))
    for x, extent, name in open_claims:
        try:
            worst = _worst(walker, item, view, x, extent)
        except _TooMany:
            findings.note(f'undecided buffer={view.buffer.name} property="{name} stays inside"')
            continue
        if worst is not None:
            findings.add(
                "view-bounds", item.site.place, None,
                f"{name} of {view.buffer.name} reaches {worst}, of extent {extent}",
                "keep the window inside: end it at the edge, x[i:min(i + size, extent)], or slice "
                "a tf.pad of the tensor; in TIR a view may state a fill",
            )  # fmt: skip


class _TooMany(Exception):
    """More values than are looked at."""


def _worst(walker: Walker, item: Placed, view: View, x: Dim, extent: int) -> int | None:
    """A value of ``x`` outside [0, extent), if there is one; the ends of a variable suffice
    where ``x`` is linear in it, others are run through."""
    fn = walker.compiler.fn(x)
    own = [(walker.compiler.at(v), (0, e - 1) if _linear(x, v) else range(e))
           for v, e in zip(view.vars, view.shape, strict=True) if v in symbols_of(x)]  # fmt: skip
    places = [place for place, _ in own]
    seen = 0
    for _, env, _ in walker.run(item, (x,)):
        for values in cartesian(*(values for _, values in own)):
            for place, value in zip(places, values, strict=True):
                env[place] = value
            value = fn(env)
            if not 0 <= value < extent:
                return value
            seen += 1
            if seen > WINDOWS:
                raise _TooMany
    return None


def _linear(x: Dim, sym: Sym) -> bool:
    """``sym`` stands in ``x`` only times constants."""
    return isinstance(x, Expr) and all(
        mono == (sym,) or sym not in symbols(Expr(((mono, 1),))) for mono, _ in x.terms
    )


# ---- windows


def _apart(held: list[Written], rounds: Rounds, findings: Findings) -> None:
    """No two owners touch the same element without a meeting between if one of them writes."""
    if not any(w.write for w in held):
        return
    if _tiles(held):
        return
    if not held:
        return
    size = [max(w.box[d][1] - w.box[d][0] + 1 for w in held) for d in range(len(held[0].box))]
    cells: dict[tuple[int, ...], dict[tuple[Owner, bool, Box, Epoch], Written]] = {}
    for item in held:
        for cell in _cells(item.box, size, tuple(item.epoch[n] for n in rounds.whole)):
            here = cells.setdefault(cell, {})
            for other in here.values():
                if _clash(other, item, rounds):
                    both = other.write and item.write
                    findings.add(
                        "device-overlap", other.site.place, item.site.place,
                        f"two participants touch the same elements, at {item.box}, one writes",
                        ("let one participant write each element" if both else
                         "write them in one function and read them in another")
                        + ", or put a grid barrier between",
                    )  # fmt: skip
                    return
            here[item.owner, item.write, item.box, item.epoch] = item


def _tiles(held: list[Written]) -> bool:
    """Quick and common: one statement writes, to tiles of one grid, each by one owner."""
    first = held[0]
    size = [hi - lo + 1 for lo, hi in first.box]
    owners: dict[Box, Owner] = {}
    for box, owner, _, _, site in held:
        if site is not first.site or owners.setdefault(box, owner) != owner:
            return False
    return all(
        lo % s == 0 and hi - lo < s for box in owners for (lo, hi), s in zip(box, size, strict=True)
    )


def _clash(a: Written, b: Written, rounds: Rounds) -> bool:
    if a.owner == b.owner or not (a.write or b.write) or not meet(a.box, b.box):
        return False
    if rounds.ordered((a.owner[0], a.epoch), (b.owner[0], b.epoch)):
        return False
    # within one block the accesses of different statements are judged by the clocks
    return a.owner[0] != b.owner[0] or a.site is b.site


def _cells(box: Box, size: list[int], epoch: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    spans = [range(lo // s, hi // s + 1) for (lo, hi), s in zip(box, size, strict=True)]
    if all(len(s) == 1 for s in spans):
        yield (*epoch, *(s.start for s in spans))
        return
    stack: list[tuple[int, ...]] = [epoch]
    for span in spans:
        stack = [(*head, x) for head in stack for x in span]
    yield from stack


def _whole(buffer: Buffer, held: list[Written], findings: Findings) -> None:
    """The windows that are written cover the output, where they do not overlap one another."""
    boxes = {w.box for w in held if w.write}
    volume = sum(prod(hi - lo + 1 for lo, hi in box) for box in boxes)
    if volume < prod(buffer.shape):
        place = next((w.site.place for w in held if w.write), None)
        _unwritten(buffer, place, volume, findings)


def _read_back(buffer: Buffer, held: list[Written], findings: Findings) -> None:
    """What is read of device memory of the kernel's own is among what somebody writes there."""
    if not held:
        return
    size = [max(w.box[d][1] - w.box[d][0] + 1 for w in held) for d in range(len(buffer.shape))]
    made: dict[tuple[int, ...], dict[Box, None]] = {}
    for item in held:
        if item.write:
            for cell in _cells(item.box, size, ()):
                made.setdefault(cell, {})[item.box] = None
    for box, site in {w.box: w.site for w in held if not w.write}.items():
        left = [box]
        near = dict.fromkeys(b for cell in _cells(box, size, ()) for b in made.get(cell, ()))
        for other in near:
            left = [part for piece in left for part in without(piece, other)]
            if not left:
                break
        if left:
            findings.add(
                "read-unwritten", site.place, None,
                f"{buffer.name} is read at {left[0]}, which nobody writes in this copy of it",
                "read what the same unit wrote, or write it in one function and read it in another",
            )  # fmt: skip
            return


def _unwritten(buffer: Buffer, place: Place | None, volume: int, findings: Findings) -> None:
    findings.add(
        "device-unwritten", place, None,
        f"at most {volume} of the {prod(buffer.shape)} elements of {buffer.name} are written",
        "write every element of an output",
    )  # fmt: skip


__all__ = ["check"]
