"""What an instruction touches: slots and boxes, and which threads touch which part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from tilefoundry.ir.expr import Atom, Dim, Expr, Sym, substitute, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.targets.instructions import TILED
from tilefoundry.tir.program import Buffer, Issue, View
from tilefoundry.verify.numbers import Compiler, Env, Fn
from tilefoundry.verify.roles import UNIT, Role, coordinate, window_axes

EVERYONE = 1 << 20
"""More threads than a block has."""
Box: TypeAlias = tuple[tuple[int, int], ...]
"""Per buffer axis the first and the last index."""


@dataclass(frozen=True, eq=False)
class Touch:
    """One operand of an issue in memory. ``partner`` is the register view that moves with
    it element by element, if there is one. ``shaved``: how far the box starts above the window
    per axis, as the role's threads move no element below."""

    view: View
    write: bool
    partner: View | None
    slot: Fn
    lows: tuple[Fn, ...]
    reach: tuple[int | None, ...]
    fixed: Box | None
    shaved: tuple[int, ...] = ()

    @property
    def buffer(self) -> Buffer:
        return self.view.buffer

    def box(self, env: Env) -> Box:
        """The smallest box around it, clipped to the buffer."""
        if self.fixed is not None:
            return self.fixed
        out: list[tuple[int, int]] = []
        for low, reach, extent in zip(self.lows, self.reach, self.buffer.shape, strict=True):
            if reach is None:
                out.append((0, extent - 1))
            else:
                at = low(env)
                out.append((max(at, 0), min(at + reach, extent - 1)))
        return tuple(out)


def touches(issue: Issue, role: Role, compiler: Compiler) -> tuple[Touch, ...]:
    """The operands of an issue in storage, in order: reads, then writes."""
    out: list[Touch] = []
    for number, view in enumerate((*issue.reads, *issue.writes)):
        if isinstance(view, View):
            write = number >= len(issue.reads)
            touch = _touch(view, write, partner(issue, view), role, compiler)
            out.append(_narrowed(touch, role) if issue.instr == "copy" else touch)
    return tuple(out)


def _narrowed(touch: Touch, role: Role) -> Touch:
    """A copy's operand with the box around the elements that the role's threads hold."""
    parts = _parts(touch, role, EVERYONE)
    if parts is None or None in touch.reach or touch.view.fill is not None:
        return touch
    (masks,) = parts.values()
    if not all(masks):
        return touch
    shaved = tuple((m & -m).bit_length() - 1 for m in masks)
    lows = tuple(_plus(low, by) for low, by in zip(touch.lows, shaved, strict=True))
    reach = tuple(m.bit_length() - 1 - by for m, by in zip(masks, shaved, strict=True))
    made = replace(touch, lows=lows, reach=reach, fixed=None, shaved=shaved)
    return made if touch.fixed is None else replace(made, fixed=made.box([]))


def _plus(low: Fn, by: int) -> Fn:
    return low if by == 0 else lambda env: low(env) + by


def partner(issue: Issue, view: View) -> View | None:
    """The register view that moves element by element with one in memory."""
    if view.storage == "rmem" or issue.instr == TILED:
        return None  # every element of a product's operand meets many of the accumulator's
    for other in (*issue.writes, *issue.reads):
        if isinstance(other, View) and other.storage == "rmem" and other.shape == view.shape:
            return other
    return None


def _touch(view: View, write: bool, other: View | None, role: Role,
           compiler: Compiler) -> Touch:  # fmt: skip
    lows: list[Fn] = []
    reach: list[int | None] = []
    moving: dict[Sym, tuple[int, int]] = {
        v: (0, e - 1) for v, e in zip(view.vars, view.shape, strict=True)
    }
    still = True
    for x in view.index:
        low, span = _extent(x, moving, role)
        lows.append(compiler.fn(low))
        reach.append(span)
        still = still and not isinstance(low, Expr)
    touch = Touch(view, write, other, compiler.fn(view.slot), tuple(lows), tuple(reach), None)
    return replace(touch, fixed=touch.box([])) if still else touch


def _extent(x: Dim, moving: dict[Sym, tuple[int, int]], role: Role) -> tuple[Dim, int | None]:
    """(lowest value, how far above it the highest lies) over the view's variables and the
    role's threads; (0, None) where it is not linear in them."""
    if not isinstance(x, Expr):
        return x, 0
    kept: list[tuple[tuple[Atom, ...], int]] = []
    base = span = 0
    for mono, coef in x.terms:
        sym = mono[0] if len(mono) == 1 else None
        ends = _ends(sym, moving, role) if isinstance(sym, Sym) else None
        if ends is not None:
            base += coef * (ends[0] if coef > 0 else ends[1])
            span += abs(coef) * (ends[1] - ends[0])
        elif any(_ends(s, moving, role) for s in symbols(Expr(((mono, 1),)))):
            return 0, None
        else:
            kept.append((mono, coef))
    if not kept or not any(mono for mono, _ in kept):
        return base + sum(coef for _, coef in kept), span
    return Expr(tuple(kept)) + base, span


def _ends(s: Sym, moving: dict[Sym, tuple[int, int]], role: Role) -> tuple[int, int] | None:
    """The least and the greatest value of a symbol that differs inside the role's access."""
    if s in moving:
        return moving[s]
    if isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT:
        values = [coordinate(s.axis, t) for t in role.threads]
        moving[s] = min(values), max(values)
        return moving[s]
    return None


def meet(a: Box, b: Box) -> bool:
    """The boxes share an element."""
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))


def within(a: Box, b: Box) -> bool:
    """``a`` lies in ``b``."""
    return all(y[0] <= x[0] and x[1] <= y[1] for x, y in zip(a, b, strict=True))


def without(a: Box, b: Box) -> list[Box]:
    """``a`` less ``b``, as boxes that are apart."""
    if not meet(a, b):
        return [a]
    out: list[Box] = []
    for n, ((low, high), (start, stop)) in enumerate(zip(a, b, strict=True)):
        if low < start:
            out.append((*a[:n], (low, start - 1), *a[n + 1 :]))
        if stop < high:
            out.append((*a[:n], (stop + 1, high), *a[n + 1 :]))
        a = (*a[:n], (max(low, start), min(high, stop)), *a[n + 1 :])
    return out


# Which threads touch which elements


def apart(a: Touch, b: Touch, role: Role, size: int, shift: tuple[int, ...]) -> bool:
    """No element is touched through ``a`` by one group of ``size`` threads of the role and
    through ``b`` by another. ``shift`` is where ``b`` starts relative to ``a``."""
    if same_map(a, b) and not any(shift) and _held_once(a, role.threads, size):
        return True
    first, second = _parts(a, role, size), _parts(b, role, size)
    if first is None or second is None:
        return False
    for group, masks in first.items():
        for other, theirs in second.items():
            if group != other and all(
                m & (t << s if s >= 0 else t >> -s)
                for m, t, s in zip(masks, theirs, shift, strict=True)
            ):
                return False
    return True


def separate(a: Touch, b: Touch, first: Role, second: Role, shift: tuple[int, ...]) -> bool:
    """No element is touched through ``a`` by one role and through ``b`` by the other."""
    if same_map(a, b) and not any(shift):
        return _held_once(a, first.threads + second.threads, 1)
    one, two = _parts(a, first, EVERYONE), _parts(b, second, EVERYONE)
    if one is None or two is None:
        return False
    return not all(
        m & (t << s if s >= 0 else t >> -s) for m, t, s in zip(one[0], two[0], shift, strict=True)
    )


def same_map(a: Touch, b: Touch) -> bool:
    """Every thread touches through ``b`` exactly the elements that it touches through ``a``."""
    p, q = a.partner, b.partner
    if p is None or q is None or a.view.buffer is not b.view.buffer:
        return False
    x, y = p.buffer, q.buffer
    if (x.layout, x.shape, x.mesh) != (y.layout, y.shape, y.mesh):
        return False
    return _same_view(p, q) and _same_view(a.view, b.view, slots=False)


def _held_once(a: Touch, threads: tuple[int, ...], size: int) -> bool:
    """No element is held by two groups of ``size`` threads: not even equal values are read
    while another thread writes them."""
    assert a.partner is not None
    return _once(a.partner.buffer.layout, a.partner.buffer.shape, threads, size)


@cache
def _once(layout: ShardLayout | None, shape: tuple[int, ...], threads: tuple[int, ...],
          size: int) -> bool:  # fmt: skip
    digits = layout.digits(shape) if layout is not None else ()
    axes = [d.axis for d in digits if d.axis.level == UNIT]
    groups: dict[tuple[int, ...], int] = {}
    return all(
        groups.setdefault(tuple(coordinate(x, t) for x in axes), t // size) == t // size
        for t in threads
    )


def _same_view(a: View, b: View, slots: bool = True) -> bool:
    if a is b:
        return True
    if a.shape != b.shape or (slots and a.slot != b.slot):
        return False
    rename: dict[Sym, Dim] = {v: w.expr() for v, w in zip(b.vars, a.vars, strict=True)}
    return all(x == substitute(y, rename) for x, y in zip(a.index, b.index, strict=True))


@cache
def _holders(layout: ShardLayout, shape: tuple[int, ...], dim: int, threads: tuple[int, ...],
             size: int) -> dict[int, int]:  # fmt: skip
    """Per group of ``size`` threads, the indices along ``dim`` that it may hold, as bits."""
    digits = [d for d in layout.digits(shape) if d.dim == dim]
    known: dict[tuple[Dim, ...], int] = {}
    for i in range(shape[dim]):
        at = tuple(i // d.inner % d.axis.extent for d in digits)
        known[at] = known.get(at, 0) | 1 << i
    out: dict[int, int] = {}
    for thread in threads:
        at = tuple(coordinate(d.axis, thread) for d in digits)
        out[thread // size] = out.get(thread // size, 0) | known.get(at, 0)
    return out


def _parts(touch: Touch, role: Role, size: int) -> dict[int, list[int]] | None:
    """Per group of threads and buffer axis, the indices touched, relative to the lowest."""
    other, axes = touch.partner, window_axes(touch.view)
    if other is None or axes is None or other.buffer.layout is None:
        return None
    held = window_axes(other)
    if held is None or any(isinstance(start, Expr) for start, _ in held):
        return None
    along = {axis: (dim, start) for dim, (start, axis) in enumerate(held) if axis is not None}
    groups = {t // size for t in role.threads}
    out: dict[int, list[int]] = {g: [] for g in groups}
    base = other.buffer
    for start, axis in axes:
        if any(isinstance(s, Coord) and s.axis and s.axis.level == UNIT
               for s in (symbols(start) if isinstance(start, Expr) else ())):  # fmt: skip
            shifts = _shifts(start, role, size)
            if shifts is None:
                return None
        else:
            shifts = {g: [0] for g in groups}
        extent = 1 if axis is None else touch.view.shape[axis]
        full = (1 << extent) - 1
        if axis is None or axis not in along:
            bits = dict.fromkeys(groups, full)
        else:
            dim, first = along[axis]
            held_bits = _holders(base.layout, base.shape, dim, role.threads, size)  # type: ignore[arg-type]
            bits = {g: (held_bits[g] >> first) & full for g in groups}  # type: ignore[operator]
        for g in groups:
            mask = 0
            for s in shifts[g]:
                mask |= bits[g] << s
            out[g].append(mask >> touch.shaved[len(out[g])] if touch.shaved else mask)
    return out


def _shifts(start: Dim, role: Role, size: int) -> dict[int, list[int]] | None:
    """Per group of threads, how far its windows start above the lowest one."""
    coords = [s for s in symbols(start)
              if isinstance(s, Coord) and s.axis is not None and s.axis.level == UNIT]  # fmt: skip
    zero = substitute(start, dict.fromkeys(coords, 0))
    values: dict[int, set[int]] = {}
    for thread in role.threads:
        env: dict[Sym, Dim] = {s: coordinate(s.axis, thread) for s in coords}  # type: ignore[arg-type]
        moved = substitute(start, env) - zero
        if not isinstance(moved, int):
            return None
        values.setdefault(thread // size, set()).add(moved)
    least = min(min(v) for v in values.values())
    return {g: sorted(x - least for x in v) for g, v in values.items()}


__all__ = [
    "Box",
    "Touch",
    "apart",
    "meet",
    "partner",
    "same_map",
    "separate",
    "touches",
    "within",
    "without",
]
