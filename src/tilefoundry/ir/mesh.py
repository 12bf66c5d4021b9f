"""Meshes: execution units of one or more parallel levels, arranged as a layout.

A mesh is a flat list of axes (level, name, extent, stride) with an offset per
level. Slices keep their offset; a re-arrangement is the layout composition of
the source with the new shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product as cartesian
from math import prod

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import Expr, Key, Sym


@dataclass(frozen=True)
class Topology:
    """One parallel level and its declared size in units."""

    level: str
    size: int

    def __repr__(self) -> str:
        return f'Topology("{self.level}", {self.size})'


@dataclass(frozen=True)
class Axis:
    """One axis of a mesh: unit of coordinate i is offset + i · stride (plus other axes)."""

    level: str
    name: str
    extent: int
    stride: int
    offset: int = 0

    @property
    def units(self) -> tuple[str, int, int, int]:
        """What the axis is physically: level, offset, extent, stride."""
        return self.level, self.offset, self.extent, self.stride


@dataclass(frozen=True, eq=False)
class Coord(Sym):
    """The coordinate of the executing unit on one axis; equal axes, equal symbol."""

    axis: Axis | None = None
    binding: str = ""

    kind = "coord"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coord) and self.axis == other.axis

    def __hash__(self) -> int:
        return hash(self.axis)

    @property
    def key(self) -> Key:  # type: ignore[override]
        axis = self.axis
        if axis is None:
            return ("coord", "", 0, "")
        place = f"{axis.extent} {axis.offset}"
        return ("coord", f"{axis.level}.{axis.name}.{axis.stride}", 0, place)


@dataclass(frozen=True)
class Mesh:
    """Units in force. ``axes`` outermost first; ``sizes`` the declared topologies."""

    axes: tuple[Axis, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Levels that the mesh arranges, outermost first."""
        return tuple(dict.fromkeys(a.level for a in self.axes))

    def at(self, level: str) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.level == level)

    def offset(self, level: str) -> int:
        return next((a.offset for a in self.axes if a.level == level), 0)

    def count(self, level: str | None = None) -> int:
        """Units of one level, or of all."""
        return prod(a.extent for a in self.axes if level in (None, a.level))

    def find(self, name: str) -> Axis | None:
        return next((a for a in self.axes if a.name == name), None)

    def coordinate(self, name: str, binding: str = "") -> Expr | None:
        """The coordinate on the axis called ``name``, None if there is none."""
        axis = self.find(name)
        if axis is None:
            return None
        return Coord(axis.name, 0, axis.extent - 1, axis=axis, binding=binding).expr()

    def units(self, level: str) -> list[int]:
        """Ids of the units of ``level`` in coordinate order."""
        ids = [self.offset(level)]
        for axis in self.at(level):
            ids = [i + c * axis.stride for i in ids for c in range(axis.extent)]
        return ids

    def coordinates(self) -> Iterator[dict[Axis, int]]:
        """Every unit as its coordinates."""
        for crd in cartesian(*(range(a.extent) for a in self.axes)):
            yield dict(zip(self.axes, crd, strict=True))

    def __repr__(self) -> str:
        parts: list[str] = []
        for level in self.levels:
            axes = self.at(level)
            size = dict(self.sizes).get(level, self.count(level))
            strides = tuple(a.stride for a in axes)
            shape = tuple(a.extent for a in axes)
            layout = f"{shape}" if strides == _row_major(shape) else f"({shape}, {strides})"
            offset = f" + {self.offset(level)}" if self.offset(level) else ""
            names = ", ".join(f'"{a.name}"' for a in axes)
            names += "," if len(axes) == 1 else ""
            parts.append(
                f'Mesh((Topology("{level}", {size}),), layout={layout}{offset}, names=({names}))'
            )
        return " x ".join(parts) if parts else "Mesh()"


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def arrange(
    level: str,
    shape: tuple[int, ...],
    names: tuple[str, ...],
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
) -> tuple[Axis, ...]:
    """Axes of one level: row-major unless strides are given."""
    steps = strides if strides is not None else _row_major(shape)
    return tuple(Axis(level, n, e, s, offset) for n, e, s in zip(names, shape, steps, strict=True))


def narrow(mesh: Mesh, index: tuple[int | slice, ...], span: Span | None = None) -> Mesh:
    """A slice of a mesh: an integer fixes and drops an axis, a range keeps it; offsets move."""
    if len(index) > len(mesh.axes):
        refuse("mesh-slice-rank", span, mesh=mesh, given=len(index), axes=len(mesh.axes))
    shift: dict[str, int] = {}
    kept: list[tuple[Axis, int]] = []
    for axis, item in zip(mesh.axes, index, strict=False):
        if isinstance(item, slice):
            start, stop, step = item.indices(axis.extent)
            given_stop = axis.extent if item.stop is None else item.stop
            if step != 1 or stop <= start or given_stop > axis.extent:
                refuse("mesh-slice-range", span, axis=axis.name, extent=axis.extent, index=item)
            kept.append((axis, stop - start))
        else:
            start = item + axis.extent if item < 0 else item
            if not 0 <= start < axis.extent:
                refuse("mesh-slice-range", span, axis=axis.name, extent=axis.extent, index=item)
        shift[axis.level] = shift.get(axis.level, 0) + start * axis.stride
    kept += [(a, a.extent) for a in mesh.axes[len(index) :]]
    levels = {a.level for a, _ in kept}
    for level in mesh.levels:
        if level not in levels:  # a level whose axes are all fixed still names one unit
            first = mesh.at(level)[-1]
            kept.append((first, 1))
    kept.sort(key=lambda item: mesh.axes.index(item[0]))
    axes = tuple(
        Axis(a.level, a.name, extent, a.stride, a.offset + shift.get(a.level, 0))
        for a, extent in kept
    )
    return Mesh(axes, mesh.sizes)


def rearrange(
    mesh: Mesh,
    shape: tuple[int, ...],
    names: tuple[str, ...],
    strides: tuple[int, ...] | None = None,
    span: Span | None = None,
) -> Mesh:
    """The units of a one-level mesh in a new shape (row-major over the source order)."""
    if len(mesh.levels) != 1:
        refuse("mesh-rearrange-levels", span, levels=" ".join(mesh.levels))
    level = mesh.levels[0]
    if prod(shape) != mesh.count():
        refuse("mesh-rearrange-size", span, shape=shape, units=prod(shape), source=mesh.count())
    steps = strides if strides is not None else _row_major(shape)
    source = mesh.units(level)
    axes: list[Axis] = []
    base = source[0]
    for name, extent, step in zip(names, shape, steps, strict=True):
        stride = source[step] - base if extent > 1 and step < len(source) else step
        axes.append(Axis(level, name, extent, stride, base))
    out = Mesh(tuple(axes), mesh.sizes)
    wanted = [
        sum(c * s for c, s in zip(crd, steps, strict=True))
        for crd in cartesian(*(range(e) for e in shape))
    ]
    in_range = all(w < len(source) for w in wanted)
    if not in_range or [source[w] for w in wanted] != out.units(level):
        refuse("mesh-rearrange-straddles", span, shape=shape, source=mesh)
    return out


def enter(
    outer: Mesh, inner: Mesh, order: tuple[str, ...], binding: str = "", span: Span | None = None
) -> Mesh:
    """The units in force inside a scope: new levels append, known ones must narrow.

    ``order`` lists the target's levels, outermost first.
    """
    known = [a for a in outer.axes if a.level not in inner.levels]
    for level in inner.levels:
        if level in outer.levels:
            deeper = [x for x in outer.levels if order.index(x) > order.index(level)]
            if [x for x in deeper if x not in inner.levels]:
                refuse("mesh-scope-level", span, level=level, inside=deeper[0])
            outside = set(inner.units(level)) - set(outer.units(level))
            if outside:
                refuse(
                    "mesh-scope-outside",
                    span,
                    level=level,
                    units=len(outside),
                    first=min(outside),
                    scope=outer,
                )
        elif any(order.index(x) > order.index(level) for x in outer.levels):
            inside = next(x for x in outer.levels if order.index(x) > order.index(level))
            refuse("mesh-scope-level", span, level=level, inside=inside)
    axes = sorted((*known, *inner.axes), key=lambda a: order.index(a.level))
    return Mesh(tuple(axes), tuple(dict((*outer.sizes, *inner.sizes)).items()))
