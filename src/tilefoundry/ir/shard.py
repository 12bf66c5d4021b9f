"""Sharded layouts: who holds what, and how it lies locally.

A :class:`ShardLayout` is a layout whose flat modes may be bound to mesh axes.
The record form of the language, ``ShardLayout(layout=, attrs=, mesh=)``, and the
tuple form, ``(8 @ cta.row, 16)``, build the same value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import Dim, Expr, bounds, product
from tilefoundry.ir.mesh import Axis
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

Nest: TypeAlias = Dim | tuple["Nest", ...]


@dataclass(frozen=True)
class S:
    """Split: the mesh axis holds pieces of mode ``mode`` (flat index)."""

    mode: int


@dataclass(frozen=True)
class B:
    """Broadcast: each unit of the axis holds the whole."""


@dataclass(frozen=True)
class P:
    """Partial: each unit of the axis holds one term of the ``kind`` combination."""

    kind: str = "sum"


@dataclass(frozen=True)
class Digit:
    """One split as arithmetic: axis coordinate = (index of ``dim`` // inner) % extent."""

    axis: Axis
    dim: int
    inner: Dim


def flat(nest: Nest) -> tuple[Dim, ...]:
    """Leaves of a nested tuple, left to right."""
    if not isinstance(nest, tuple):
        return (nest,)
    return tuple(leaf for item in nest for leaf in flat(item))


def refill(nest: Nest, leaves: Iterator[Dim]) -> Nest:
    """The shape of ``nest`` with new leaves."""
    if isinstance(nest, tuple):
        return tuple(refill(item, leaves) for item in nest)
    return next(leaves)


@dataclass(frozen=True)
class ShardLayout:
    """Nested ``shape`` and ``stride`` (None: the storage's default), the mesh axis
    bound to each flat mode, partial axes, swizzle and element offset.

    Two are equal if they say the same of one tensor: how modes nest and the order in which
    partial axes are named do not count.
    """

    shape: tuple[Nest, ...]
    stride: tuple[Nest, ...] | None = None
    axes: tuple[Axis | None, ...] = ()
    partial: tuple[tuple[Axis, str], ...] = ()
    swizzle: Swizzle | None = None
    offset: int = 0

    @cached_property
    def _said(self) -> tuple[object, ...]:
        axes = self.axes or (None,) * len(self.modes)
        held = frozenset(self.partial)
        return self.modes, self.strides, axes, held, self.swizzle, self.offset

    @cached_property
    def _hash(self) -> int:
        return hash(self._said)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardLayout) and self._said == other._said

    @cached_property
    def modes(self) -> tuple[Dim, ...]:
        """Flat mode extents."""
        return flat(self.shape)

    @cached_property
    def strides(self) -> tuple[Dim, ...] | None:
        return None if self.stride is None else flat(self.stride)

    @property
    def is_plain(self) -> bool:
        """Nothing is said beyond the shape."""
        return self == ShardLayout(self.shape, axes=self.axes) and not any(self.axes)

    @property
    def split_axes(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a is not None)

    def groups(self, shape: tuple[Dim, ...], span: Span | None = None) -> tuple[range, ...]:
        """Which flat modes make up each logical axis of ``shape``.

        Nested layouts with one top-level mode per axis map one to one; flat ones by
        walking modes and multiplying until each extent is hit exactly.
        """
        if len(self.shape) == len(shape) and all(
            product(flat(top)) == extent for top, extent in zip(self.shape, shape, strict=True)
        ):
            out: list[range] = []
            at = 0
            for top in self.shape:
                size = len(flat(top))
                out.append(range(at, at + size))
                at += size
            return tuple(out)
        return self._walk(shape, span)

    def _walk(self, shape: tuple[Dim, ...], span: Span | None) -> tuple[range, ...]:
        out: list[range] = []
        at = 0
        for dim, extent in enumerate(shape):
            start, held = at, 1
            while at < len(self.modes) and (at == start or held != extent):
                held = held * self.modes[at]
                at += 1
            if held != extent:
                self._misses(shape, dim, start, span)
            out.append(range(start, at))
        while at < len(self.modes) and self.modes[at] == 1 and out:
            out[-1] = range(out[-1].start, at + 1)
            at += 1
        if at != len(self.modes):
            surplus = " ".join(str(m) for m in self.modes[at:])
            whole, made = product(shape), product(self.modes)
            needs = f"modes whose product is the {whole} elements of the shape"
            found = f"{made}, as {surplus} follows when every axis is complete"
            self._no_fit(shape, needs, found, f"leave out {surplus}", span)
        return tuple(out)

    def _misses(self, shape: tuple[Dim, ...], dim: int, start: int, span: Span | None) -> NoReturn:
        """Refuse for the modes from ``start`` on, which do not reach the extent of ``dim``."""
        extent = shape[dim]
        group = self._meant(shape, dim, start)
        extents = [product(self.modes[m] for m in top) for top in group]
        held = product(extents)
        fix = f"give axis {dim} modes that multiply to {extent}"
        if not group:
            fix = f"add a mode of extent {extent} for axis {dim}"
        elif isinstance(extent, int) and isinstance(held, int) and held > 0:
            inner = held // int(bounds(extents[0])[0])
            step = inner * math.prod(a.extent for m in group[0] if (a := self.axes[m]) is not None)
            below, above = extent // step * step, -(-extent // step) * step
            fix = f"write {extent // inner} in place of {extents[0]}"
            if extent % step:
                nearest = f"{below} and {above} are" if below else f"{above} is"
                fix = f"choose an extent that is a multiple of {step}, as {nearest}, or other modes"
        several = f"{' x '.join(map(str, extents))} = {held}"
        needs = f"modes whose product is extent {extent} of axis {dim}"
        found = several if len(group) > 1 else str(held) if group else "no mode left for it"
        self._no_fit(shape, needs, found, fix, span)

    def _no_fit(
        self, shape: tuple[Dim, ...], needs: str, found: str, fix: str, span: Span | None
    ) -> NoReturn:
        refuse("layout-shape", span, layout=self.text(), shape=shape_text(shape), needs=needs,
               found=found, fix=fix)  # fmt: skip

    def _meant(self, shape: tuple[Dim, ...], dim: int, start: int) -> tuple[tuple[int, ...], ...]:
        """The modes that an author meant for axis ``dim``, grouped as written: its own nested
        entry's, else as many as do not pass its extent."""
        tops: list[tuple[int, ...]] = []
        at = 0
        for top in self.shape:
            size = len(flat(top))
            tops.append(tuple(range(at, at + size)))
            at += size
        if len(tops) == len(shape):
            top = tops[dim]
            whole = len(top) == 1 or any(self.axes[m] is not None for m in top)
            return (top,) if whole else tuple((m,) for m in top)
        group = [top for top in tops if start in top][:1]
        for top in (t for t in tops if t[0] > start and t not in group):
            held = product(self.modes[m] for t in (*group, top) for m in t)
            if not bounds(held - shape[dim])[1] <= 0:
                break
            group.append(top)
        return tuple(group)

    def digits(self, shape: tuple[Dim, ...]) -> tuple[Digit, ...]:
        """Each split as arithmetic on the logical axes of ``shape``."""
        out: list[Digit] = []
        for dim, group in enumerate(self.groups(shape)):
            inner: Dim = 1
            for mode in reversed(group):
                axis = self.axes[mode]
                if axis is not None:
                    out.append(Digit(axis, dim, inner))
                inner = inner * self.modes[mode]
        return tuple(sorted(out, key=lambda d: (d.dim, -bounds(d.inner)[0])))

    def local(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape of the part that one unit holds."""
        return tuple(
            product(self.modes[m] for m in group if self.axes[m] is None)
            for group in self.groups(shape)
        )

    def attrs(self, axes: tuple[Axis, ...]) -> tuple[S | B | P, ...]:
        """Per mesh axis: split, broadcast or partial (the record form)."""
        kinds = dict(self.partial)
        where = {a: i for i, a in enumerate(self.axes) if a is not None}
        return tuple(
            P(kinds[a]) if a in kinds else S(where[a]) if a in where else B() for a in axes
        )

    def layout(self) -> Layout | ComposedLayout:
        """The layout without its distribution (default strides: row-major)."""
        base = Layout(self.shape) if self.stride is None else Layout(self.shape, self.stride)
        if self.swizzle is None and not self.offset:
            return base
        return ComposedLayout(self.swizzle, self.offset, base)

    def text(self) -> str:
        """As an author writes it."""
        names = iter(f"{m} @ {a.name}" if a else str(m) for m, a in _zip(self.modes, self.axes))
        body = _nest_text(_refill_text(self.shape, names))
        if self.stride is not None:
            body = f"({body}, {_nest_text(self.stride)})"
        elif len(self.shape) == 2 and all(isinstance(top, tuple) for top in self.shape):
            body = f"({body}, None)"  # two tuples alone would be shape and strides
        if self.offset:
            body += f" + {self.offset}"
        if self.swizzle is not None:
            body += f" | {self.swizzle}"
        if self.partial:
            if self.offset or self.swizzle is not None:
                body = f"({body})"
            kinds = ", ".join(f'{a.name} @ P("{k}")' for a, k in self.partial)
            body += f" @ {{{kinds}}}"
        return body


def _zip(
    modes: tuple[Dim, ...], axes: tuple[Axis | None, ...]
) -> Iterator[tuple[Dim, Axis | None]]:
    return zip(modes, axes or (None,) * len(modes), strict=True)


def _refill_text(nest: Any, leaves: Iterator[str]) -> object:
    if isinstance(nest, tuple):
        return tuple(_refill_text(item, leaves) for item in nest)  # pyright: ignore[reportUnknownVariableType]
    return next(leaves)


def _nest_text(nest: Any) -> str:
    if not isinstance(nest, tuple):
        return str(nest)
    items = [_nest_text(item) for item in nest]  # pyright: ignore[reportUnknownVariableType]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def shape_text(shape: tuple[Dim, ...]) -> str:
    """A shape as an author writes it: ``(128, 64)``, ``(8,)``."""
    return _nest_text(shape)


def split_mode(extent: Dim, axis: Axis, span: Span | None = None) -> tuple[Dim, ...]:
    """``extent @ axis`` as modes: (axis extent, rest), the rest omitted when it is 1.

    Refuses an extent that the axis does not divide, naming the nearest that it does.
    """
    if extent == axis.extent:
        return (extent,)
    lo, hi = bounds(extent)
    if isinstance(extent, Expr):
        rest = extent // axis.extent
        if rest * axis.extent != extent:
            refuse(
                "shard-indivisible",
                span,
                extent=extent,
                axis=axis.name,
                units=axis.extent,
                nearest=f"a multiple of {axis.extent} (for example {axis.extent} * n)",
            )
        return (axis.extent, rest)
    if extent % axis.extent:
        below = int(lo) // axis.extent * axis.extent
        above = below + axis.extent
        nearest = f"{below} or {above}" if below else str(above)
        refuse(
            "shard-indivisible",
            span,
            extent=extent,
            axis=axis.name,
            units=axis.extent,
            nearest=nearest,
        )
    assert hi == lo
    return (axis.extent, extent // axis.extent)


def from_digits(
    shape: tuple[Dim, ...],
    digits: tuple[Digit, ...],
    partial: tuple[tuple[Axis, str], ...] = (),
) -> ShardLayout:
    """The layout with default strides whose splits are ``digits``.

    It is written flat, as an author does, unless extents of 1 leave the axes unclear: then
    with one nest per axis.
    """
    tops: list[Nest] = []
    axes: list[Axis | None] = []
    for dim, extent in enumerate(shape):
        splits = [d for d in digits if d.dim == dim]
        splits.sort(key=lambda d: -bounds(d.inner)[0])
        modes: list[Dim] = []
        left = extent
        for digit in splits:
            block = digit.inner * digit.axis.extent
            if left != block:
                modes.append(left // block)
                axes.append(None)
            modes.append(digit.axis.extent)
            axes.append(digit.axis)
            left = digit.inner
        if left != 1 or not modes:
            modes.append(left)
            axes.append(None)
        tops.append(modes[0] if len(modes) == 1 else tuple(modes))
    clear = all(_ends_at_last(flat(top)) for top in tops)
    shown = flat(tuple(tops)) if clear else tuple(tops)
    return ShardLayout(shown, axes=tuple(axes), partial=partial)


def _ends_at_last(modes: tuple[Dim, ...]) -> bool:
    """Walking the modes, the product reaches the whole at the last one and no earlier."""
    whole = product(modes)
    held: Dim = 1
    for mode in modes[:-1]:
        held = held * mode
        if held == whole:
            return False
    return True
