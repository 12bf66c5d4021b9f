"""Which element of a tile each register of a thread holds, as numbers.

Tables are made for the unit whose coordinates are all 0 and hold for every unit: what a
coordinate adds is kept apart as an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from tilefoundry.ir.expr import (
    Dim,
    Expr,
    FloorDiv,
    MinMax,
    Mod,
    Sym,
    floordiv,
    mod,
    multiple_of,
    substitute,
    symbols,
)
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.shard import Digit
from tilefoundry.targets.contract.copy import Side
from tilefoundry.targets.cuda.emit.text import per_word
from tilefoundry.targets.cuda.instr.matrix import Fragment
from tilefoundry.tir.program import Buffer, View

Place = tuple[int, ...]


@dataclass(frozen=True)
class Local:
    """A mode that a unit counts through: (coordinate of ``dim`` // inner) % extent."""

    dim: int
    extent: int
    inner: int


@lru_cache(maxsize=4096)
def locals_of(buffer: Buffer) -> tuple[Local, ...]:
    """A unit's modes, slowest first."""
    layout = buffer.layout
    if layout is None:
        return tuple(Local(n, e, 1) for n, e in enumerate(buffer.shape) if e > 1)
    found: dict[int, Local] = {}
    for dim, group in enumerate(layout.groups(buffer.shape)):
        inner = 1
        for mode in reversed(group):
            extent = int(layout.modes[mode])  # type: ignore[arg-type]
            axis = layout.axes[mode] if layout.axes else None
            if (axis is None or axis not in buffer.mesh.axes) and extent > 1:
                found[mode] = Local(dim, extent, inner)
            inner *= extent
    order = _order(buffer, sorted(found))
    return tuple(found[m] for m in order if m in found)


def _order(buffer: Buffer, modes: list[int]) -> list[int]:
    """The stated order, or the one that puts a matrix register's neighbours into one word."""
    if buffer.registers is not None:
        return list(reversed(buffer.registers))
    packed = per_word(buffer.dtype)
    if packed > 1 and len(modes) > 1 and buffer.layout and buffer.layout.split_axes:
        side = Side(buffer.type)
        if Fragment(side).run(packed) is None:
            for mode in reversed(modes):
                if Fragment(side, mode).run(packed) is not None:
                    return [*(m for m in modes if m != mode), mode]
    return modes


def count(buffer: Buffer) -> int:
    """Elements that a thread holds of one slot."""
    out = 1
    for mode in locals_of(buffer):
        out *= mode.extent
    return out


def words(buffer: Buffer) -> int:
    """Words of a thread's array."""
    return -(-count(buffer) // per_word(buffer.dtype)) * buffer.slots


def register(buffer: Buffer, place: Sequence[int]) -> int:
    """The number of the element at ``place`` among those of the unit that holds it."""
    out = 0
    for mode in locals_of(buffer):
        out = out * mode.extent + place[mode.dim] // mode.inner % mode.extent
    return out


def coordinate(axis: Axis) -> Dim:
    """A unit's coordinate as an expression."""
    return Coord(axis.name, 0, axis.extent - 1, axis=axis).expr()


@lru_cache(maxsize=4096)
def digits_of(buffer: Buffer) -> tuple[Digit, ...]:
    """The splits of a buffer over the units of its mesh."""
    return tuple(d for d in buffer.type.digits if d.axis in buffer.mesh.axes and d.axis.extent > 1)


@dataclass(frozen=True)
class Split:
    """Of axis ``dim`` of a view, (coordinate // inner) % extent is what units along ``axis``
    share: their coordinate // ``step`` % extent."""

    axis: Axis
    dim: int
    inner: int
    extent: int
    step: int

    @property
    def at(self) -> Dim:
        """The unit's part, as an expression."""
        return mod(floordiv(coordinate(self.axis), self.step), self.extent)


def view_splits(view: View) -> tuple[Split, ...] | str:
    """The splits of a buffer as splits of the view's axes; words where there are none."""
    out: list[Split] = []
    for d in digits_of(view.buffer):
        runs = _runs(view, view.index[d.dim])
        low = int(d.inner)  # type: ignore[arg-type]
        left, step = d.axis.extent, 1
        for dim, weight, extent, scale in runs or ():
            at = low * step
            if left == 1 or at >= weight * extent:
                continue
            if at < weight or at % weight:
                break
            part = min(left, weight * extent // at)
            if left % part or (weight * extent) % (at * part):
                break
            out.append(Split(d.axis, dim, at // weight * scale, part, step))
            left, step = left // part, step * part
        if left > 1:
            return f"it cuts the blocks that {d.axis.name} is dealt"
    return tuple(out)


Run = tuple[int, int, int, int]
"""(axis n of a view, weight, extent, scale): weight * (coordinate n // scale % extent)."""


def _runs(view: View, place: Dim) -> list[Run] | None:
    """The runs that ``place`` is the sum of, lightest first, where they are its digits and its
    start adds no carry."""
    free: dict[Sym, Dim] = {v: 0 for v, e in zip(view.vars, view.shape, strict=True) if e == 1}
    place = substitute(place, free)
    axes: dict[Sym, int] = {v: n for n, v in enumerate(view.vars)}
    found: list[Run] = []
    start: Dim = 0
    for mono, coef in place.terms if isinstance(place, Expr) else (((), place),):
        term = Expr(((mono, coef),)) if mono else coef
        if not symbols(term) & axes.keys():
            start = start + term
            continue
        digit = _digit(mono[0], axes, view.shape) if len(mono) == 1 else None
        if digit is None or coef < 1:
            return None
        found.append((digit[0], coef, digit[1], digit[2]))
    found.sort(key=lambda x: x[1])
    reach = 1
    for _, weight, extent, _ in found:
        if weight % reach:
            return None
        reach = weight * extent
    return found if multiple_of(start) % reach == 0 else None


def _digit(
    atom: object, axes: Mapping[Sym, int], shape: Sequence[int]
) -> tuple[int, int, int] | None:
    """(axis, extent, scale) of a factor that is part of one coordinate."""
    if isinstance(atom, Sym):
        return (axes[atom], shape[axes[atom]], 1) if atom in axes else None
    if not isinstance(atom, (FloorDiv, Mod)) or not isinstance(atom.den, int):
        return None
    num = atom.num
    if not isinstance(num, Expr) or len(num.terms) != 1 or num.terms[0][1] != 1:
        return None
    inner = _digit(num.terms[0][0][0], axes, shape) if len(num.terms[0][0]) == 1 else None
    if inner is None or inner[1] % atom.den:
        return None
    axis, extent, scale = inner
    if isinstance(atom, Mod):
        return axis, atom.den, scale
    return axis, extent // atom.den, scale * atom.den


def _segments(shape: Sequence[int], splits: Sequence[Split]) -> list[Local]:
    """What is left of the axes when the splits are taken, outermost first."""
    out: list[Local] = []
    for dim, extent in enumerate(shape):
        above = extent
        for s in sorted((s for s in splits if s.dim == dim), key=lambda s: -s.inner):
            inner = s.inner * s.extent
            if above > inner:
                out.append(Local(dim, above // inner, inner))
            above = s.inner
        if above > 1:
            out.append(Local(dim, above, 1))
    return out


@dataclass(frozen=True)
class Domain:
    """What a unit does for one issue: ``at`` the coordinates of each element for the unit
    at 0, in the order of the registers ``registers``; ``base`` what a unit's own coordinates
    add; ``last`` that number for the unit with the largest coordinates."""

    at: tuple[Place, ...]
    registers: tuple[int, ...]
    base: tuple[Dim, ...]
    last: Place

    @property
    def size(self) -> int:
        return len(self.at)


@lru_cache(maxsize=4096)
def domain(view: View) -> Domain | str:
    """The elements of a view in registers that a unit holds."""
    splits = view_splits(view)
    if isinstance(splits, str):
        return splits
    parts = _segments(view.shape, splits)
    base: list[Dim] = [0] * len(view.shape)
    last = [0] * len(view.shape)
    for d in splits:
        base[d.dim] = base[d.dim] + d.at * d.inner
        last[d.dim] += (d.extent - 1) * d.inner
    place = numeric(view)
    found: list[tuple[int, Place]] = []
    for turn in product(*(range(s.extent) for s in parts)):
        at = [0] * len(view.shape)
        for t, s in zip(turn, parts, strict=True):
            at[s.dim] += t * s.inner
        found.append((register(view.buffer, place(tuple(at))), tuple(at)))
    found.sort()
    return Domain(tuple(a for _, a in found), tuple(r for r, _ in found), tuple(base), tuple(last))


MOST_STEPS = 256
"""Steps of a loop in which registers may be named."""


@lru_cache(maxsize=4096)
def moving(view: View) -> tuple[Sym, int] | str | None:
    """The symbol that moves a view along its registers, and by how many for each of the
    symbol's steps; None where it stays, words where its registers have no fixed numbers."""
    split = {d.axis for d in digits_of(view.buffer)}
    free = frozenset[Sym]().union(*map(symbols, view.index)) - {*view.vars}
    found: tuple[Sym, int] | None = None
    for sym in sorted(free, key=lambda s: s.key):
        axis = sym.axis if isinstance(sym, Coord) else None
        if axis is not None and (axis in split or axis.extent == 1):
            continue
        by = _moves(view, sym)
        if isinstance(by, str):
            return by
        if by and found:
            return f"it moves with {found[0]} and with {sym}"
        found = (sym, by) if by else found
    return found


def _moves(view: View, sym: Sym) -> int | str:
    """Registers for each step of ``sym``, the same for all elements and all steps."""
    over = domain(view)
    if isinstance(over, str):
        return over
    known = sym.lo >= 0 and sym.hi < math.inf
    steps = range(0, int(sym.hi) + 1, sym.multiple) if known else range(0)
    if not 0 < len(steps) <= MOST_STEPS:
        return f"it moves with {sym}, which has not few fixed values"
    by = 0
    for n, value in enumerate(steps):
        index = tuple(substitute(x, {sym: value}) for x in view.index)
        there = numeric(replace(view, index=index))
        apart = {register(view.buffer, there(at)) - r
                 for at, r in zip(over.at, over.registers, strict=True)}  # fmt: skip
        by = min(apart) if n == 1 else by
        if apart != {n * by}:
            return f"a step of {sym} is no multiple of what a unit holds"
    return by


@lru_cache(maxsize=8192)
def numeric(view: View) -> Callable[[Place], Place]:
    """The view's element as coordinates in the buffer, every other symbol being 0."""
    names: dict[Sym, str] = {v: f"v[{n}]" for n, v in enumerate(view.vars)}
    parts = [python(x, names) for x in view.index]
    return eval(f"lambda v: ({', '.join(parts)}{',' if parts else ''})")


def python(x: Dim, names: Mapping[Sym, str]) -> str:
    """An expression as Python; symbols without a name are 0."""
    if not isinstance(x, Expr):
        return str(x)
    out: list[str] = []
    for mono, coef in x.terms:
        factors = [str(coef)]
        for atom in mono:
            if isinstance(atom, Sym):
                factors.append(names.get(atom, "0"))
            elif isinstance(atom, MinMax):
                args = ", ".join(python(a, names) for a in atom.args)
                factors.append(f"{atom.name}({args})")
            else:
                assert isinstance(atom, (FloorDiv, Mod))
                sign = "//" if isinstance(atom, FloorDiv) else "%"
                num, den = python(atom.num, names), python(atom.den, names)
                factors.append(f"(({num}) {sign} ({den}))")
        out.append(" * ".join(factors))
    return " + ".join(out)


def moved(view: View, at: Sequence[Dim]) -> tuple[Dim, ...]:
    """Coordinates in the buffer of the view's element at ``at``."""
    env: dict[Sym, Dim] = dict(zip(view.vars, at, strict=True))
    return tuple(substitute(x, env) for x in view.index)


__all__ = ["Domain", "count", "domain", "locals_of", "moved", "numeric", "register",
           "words"]  # fmt: skip
