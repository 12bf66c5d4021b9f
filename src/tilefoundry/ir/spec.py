"""Layouts as an author writes them, turned into sharded layouts.

The tuple forms of the language: ``(8, 16)``, ``((8, 16), (1, 8))`` (shape, strides; None
for the default ones, which two nested modes need: ``(((2, 8), (4, 16)), None)``),
``(8 @ t.w, 16)``, ``L | Swizzle(3, 4, 3)``, ``... @ {t.l @ P("sum")}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import Dim, Expr
from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.ir.shard import B, Nest, P, S, ShardLayout, flat, split_mode
from tilefoundry.layout import ComposedLayout, Layout

KINDS = ("sum", "prod", "max", "min", "any", "all")
"""How the terms of a partial value combine."""


@dataclass(frozen=True)
class Split:
    """``extent @ mesh.axis``."""

    extent: Dim
    axis: Axis


@dataclass(frozen=True)
class Tag:
    """One entry of ``layout @ {...}``: an axis that is broadcast or partial."""

    axis: Axis | None
    kind: B | P


@dataclass(frozen=True)
class Tagged:
    """``layout @ {tags}``."""

    base: object
    tags: tuple[Tag, ...]


def layout_from(spec: object, span: Span | None = None) -> ShardLayout:
    """The sharded layout that ``spec`` (any written form) states.

    Refuses what is not a layout, a split that does not divide, an axis bound twice,
    and explicit strides that put two elements in one place.
    """
    if isinstance(spec, ShardLayout):
        return spec
    if isinstance(spec, Tagged):
        base = layout_from(spec.base, span)
        partial = tuple(
            (t.axis, t.kind.kind) for t in spec.tags if t.axis and isinstance(t.kind, P)
        )
        return _checked(replace(base, partial=base.partial + partial), span)
    if isinstance(spec, ComposedLayout):
        base = layout_from(spec.layout, span)
        return _checked(replace(base, swizzle=spec.swizzle, offset=spec.offset), span)
    if isinstance(spec, Layout):
        if _is_default(spec):
            return _from_tuples(_tuple(spec.shape), None, span)
        return _from_tuples(_tuple(spec.shape), _tuple(spec.strides), span)
    if isinstance(spec, (int, Expr, Split)) and not isinstance(spec, bool):
        return _from_tuples((spec,), None, span)
    if isinstance(spec, tuple):
        items = _tuple(spec)
        if len(items) == 2 and isinstance(items[0], tuple) and items[1] is None:
            return _from_tuples(_tuple(items[0]), None, span)
        if len(items) == 2 and all(isinstance(x, tuple) for x in items):
            return _from_tuples(_tuple(items[0]), _tuple(items[1]), span)
        return _from_tuples(items, None, span)
    refuse("layout-form", span, found=_show(spec))


def from_record(
    layout: object, attrs: Sequence[object], mesh: Mesh, span: Span | None = None
) -> ShardLayout:
    """``ShardLayout(layout=..., attrs=(S(0), B(), ...), mesh=...)``."""
    base = layout_from(layout, span)
    axes = mesh.axes
    if len(attrs) != len(axes):
        refuse("layout-attrs", span, attrs=len(attrs), axes=len(axes), mesh=mesh)
    bound: list[Axis | None] = [None] * len(base.modes)
    partial: list[tuple[Axis, str]] = []
    for axis, attr in zip(axes, attrs, strict=True):
        if isinstance(attr, P):
            partial.append((axis, attr.kind))
        elif isinstance(attr, S):
            known = type(attr.mode) is int and 0 <= attr.mode < len(bound)
            if not known or base.modes[attr.mode] != axis.extent:
                refuse(
                    "layout-attr-mode",
                    span,
                    mode=attr.mode,
                    axis=axis.name,
                    units=axis.extent,
                    modes=base.modes,
                )
            bound[attr.mode] = axis
        elif not isinstance(attr, B):
            refuse("layout-form", span, found=_show(attr))
    return _checked(replace(base, axes=tuple(bound), partial=tuple(partial)), span)


def _is_default(layout: Layout) -> bool:
    return layout.strides == Layout(layout.shape).strides


def _tuple(x: Any) -> tuple[object, ...]:
    return x if isinstance(x, tuple) else (x,)  # pyright: ignore[reportUnknownVariableType]


def _show(x: object) -> str:
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def _from_tuples(
    shape: tuple[object, ...], stride: tuple[object, ...] | None, span: Span | None
) -> ShardLayout:
    axes: list[Axis | None] = []
    if stride is None:
        modes = tuple(_mode(item, axes, span) for item in shape)
        return _checked(ShardLayout(modes, axes=tuple(axes)), span)
    pairs = _paired(shape, stride, span)
    sizes: list[Nest] = []
    steps: list[Nest] = []
    for item, step in pairs:
        size, scaled = _strided(item, step, axes, span)
        sizes.append(size)
        steps.append(scaled)
    return _checked(ShardLayout(tuple(sizes), tuple(steps), tuple(axes)), span)


def _paired(
    shape: tuple[object, ...], stride: tuple[object, ...], span: Span | None
) -> list[tuple[object, object]]:
    if len(shape) != len(stride):
        refuse("layout-congruence", span, shape=_show(shape), strides=_show(stride))
    return list(zip(shape, stride, strict=True))


def _mode(item: object, axes: list[Axis | None], span: Span | None) -> Nest:
    """One mode without strides; ``X @ axis`` may become two."""
    if isinstance(item, tuple):
        items = _tuple(item)
        return tuple(_mode(sub, axes, span) for sub in items)
    if isinstance(item, Split):
        parts = split_mode(item.extent, item.axis, span)
        axes.append(item.axis)
        axes.extend([None] * (len(parts) - 1))
        return parts[0] if len(parts) == 1 else parts
    if isinstance(item, (int, Expr)) and not isinstance(item, bool):
        axes.append(None)
        return item
    refuse("layout-form", span, found=_show(item))


def _strided(
    item: object, step: object, axes: list[Axis | None], span: Span | None
) -> tuple[Nest, Nest]:
    if isinstance(item, tuple):
        items = _tuple(item)
        if not isinstance(step, tuple):
            refuse("layout-congruence", span, shape=_show(items), strides=_show(step))
        pairs = [_strided(a, b, axes, span) for a, b in _paired(items, _tuple(step), span)]
        return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    if not isinstance(step, (int, Expr)) or isinstance(step, bool):
        refuse("layout-congruence", span, shape=_show(item), strides=_show(step))
    size = _mode(item, axes, span)
    if isinstance(size, tuple):  # a factored split: the outer part strides over the rest
        rest = flat(size)[1]
        return size, (step * rest, step)
    return size, step


def _checked(layout: ShardLayout, span: Span | None) -> ShardLayout:
    bound = [*layout.split_axes, *(a for a, _ in layout.partial)]
    for axis in bound:
        if bound.count(axis) > 1:
            refuse("layout-axis-twice", span, axis=axis.name, layout=layout.text())
    for extent in layout.modes:
        if isinstance(extent, int) and extent < 0:
            refuse("layout-form", span, found=_show(extent))
    for _, kind in layout.partial:
        if kind not in KINDS:
            refuse("layout-tags", span, found=f"P({kind!r})")
    strides = layout.strides
    for step in strides or ():
        if isinstance(step, int) and step < 0:
            refuse("layout-form", span, found=_show(step))
    if strides is not None and not injective(layout.modes, strides):
        refuse("layout-overlap", span, layout=layout.text())
    return layout


def injective(modes: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    """No two coordinates share an offset; sorted strides decide, enumeration where not."""
    pairs = [(s, m) for m, s in zip(modes, strides, strict=True) if m != 1]
    if not all(isinstance(x, int) for pair in pairs for x in pair):
        return True  # open extents: judged when bound
    reach = 0
    ints = sorted((int(s), int(m)) for s, m in pairs)  # type: ignore[arg-type]
    for step, extent in ints:
        if step <= reach:
            return _enumerated(ints)
        reach += step * (extent - 1)
    return True


def _enumerated(pairs: list[tuple[int, int]]) -> bool:
    """Exact, by sums of strides kept as a set; large layouts stop at the first clash."""
    seen = {0}
    reach = 0
    for step, extent in pairs:
        reach += step * (extent - 1)
        if len(seen) * extent > reach + 1:  # more coordinates than places
            return False
        grown = {base + step * i for base in seen for i in range(extent)}
        if len(grown) != len(seen) * extent:
            return False
        seen = grown
    return True


def axes_outside(layout: ShardLayout, mesh: Mesh) -> tuple[Axis, ...]:
    """Axes the layout is bound to that are not in force in ``mesh``."""
    used = (*layout.split_axes, *(a for a, _ in layout.partial))
    return tuple(a for a in used if a not in mesh.axes)
