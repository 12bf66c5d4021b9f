"""Where things are: units of a kernel, and the elements that a view reaches.

Tables of one kernel that every execution shares; all arrays are numpy, element numbers are
row-major in one slot of a buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tilefoundry.ir.expr import Dim, Expr, FloorDiv, MinMax, Mod, Sym, symbols
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.tir.program import (
    Buffer,
    Counter,
    For,
    Issue,
    PrimFunc,
    Stmt,
    View,
    When,
    With,
    views,
    walk,
)

WARP = 32
SHARED, DEVICE, REGISTERS = "smem", "gmem", "rmem"
Values = Mapping[Sym, Any]
"""Symbols to integers, or to one integer per lane (shape (lanes, 1))."""


def value(x: Dim, env: Values) -> Any:
    """``x`` where symbols may stand for arrays."""
    if not isinstance(x, Expr):
        return x
    total: Any = 0
    for mono, coef in x.terms:
        term: Any = coef
        for atom in mono:
            if isinstance(atom, Sym):
                term = term * env[atom]
            elif isinstance(atom, FloorDiv):
                term = term * (value(atom.num, env) // value(atom.den, env))
            elif isinstance(atom, Mod):
                term = term * (value(atom.num, env) % value(atom.den, env))
            else:
                assert isinstance(atom, MinMax)
                args = [value(a, env) for a in atom.args]
                pick = np.minimum if atom.name == "min" else np.maximum
                first = args[0]
                for arg in args[1:]:
                    first = pick(first, arg)
                term = term * first
        total = total + term
    return total


def distinct(x: Any) -> Any:
    """The distinct values, ascending."""
    ranked = np.sort(np.ravel(x))
    keep = np.ones(len(ranked), bool)
    np.not_equal(ranked[1:], ranked[:-1], out=keep[1:])
    return ranked[keep]


class Units:
    """The units of a kernel: CTAs (all levels but the innermost) of ``threads`` threads in
    warps of ``width``. Where a target's innermost units go in step (``in_step``), an outer one,
    such as a core, has one warp: all its lanes."""

    def __init__(self, func: PrimFunc) -> None:
        sizes = {t.level: t.size for t in func.topologies}
        self.level: str = func.target.levels[-1]
        self.outer = [t.level for t in func.topologies if t.level != self.level]
        self.threads = sizes.get(self.level, 1)
        self.ctas = prod(sizes[level] for level in self.outer)
        self.in_step: bool = func.target.in_step
        self.width = self.threads if self.in_step else WARP
        self.warps = -(-self.threads // self.width)
        grid = np.indices(tuple(sizes[x] for x in self.outer) or (1,)).reshape(
            max(1, len(self.outer)), -1
        )
        self.at = {level: grid[n] for n, level in enumerate(self.outer)}
        """Level to the id there of each CTA."""
        self.axes: dict[Axis, Any] = {}
        for stmt, mesh in walk(func.body):
            self._learn(mesh)
            if hasattr(stmt, "own"):
                self._learn(stmt.mesh)  # type: ignore[union-attr]
                self._learn(stmt.own)  # type: ignore[union-attr]
        for buffer in func.buffers:
            self._learn(buffer.mesh)
        # by identity: the kernel keeps its meshes, and hashing one walks all its axes
        self._lanes: dict[tuple[int, int], tuple[int, ...]] = {}
        self._ordered: dict[int, Any] = {}

    def _learn(self, mesh: Mesh) -> None:
        for level in mesh.levels:
            axes = mesh.at(level)
            if all(a in self.axes for a in axes):
                continue
            ids = np.array(mesh.units(level))
            grid = np.indices(tuple(a.extent for a in axes)).reshape(len(axes), -1)
            size = self.threads if level == self.level else int(ids.max()) + 1
            for n, axis in enumerate(axes):
                table = np.full(max(size, int(ids.max()) + 1), -1)
                table[ids] = grid[n]
                self.axes.setdefault(axis, table)

    def coordinate(self, axis: Axis, cta: int, threads: Any) -> Any:
        """The coordinate on ``axis`` of threads of a CTA; -1 outside."""
        table = self.axes[axis]
        if axis.level == self.level:
            return table[threads]
        unit = int(self.at[axis.level][cta])
        return int(table[unit]) if unit < len(table) else -1

    def lanes(self, mesh: Mesh, cta: int) -> tuple[int, ...]:
        """For each warp of a CTA, which of its lanes are units of ``mesh`` (as bits)."""
        found = self._lanes.get((id(mesh), cta))
        if found is None:
            found = self._lanes[id(mesh), cta] = self._find_lanes(mesh, cta)
        return found

    def _find_lanes(self, mesh: Mesh, cta: int) -> tuple[int, ...]:
        for level in self.outer:
            if mesh.at(level) and int(self.at[level][cta]) not in mesh.units(level):
                return (0,) * self.warps
        every = range(self.threads)
        ids = mesh.units(self.level) if mesh.at(self.level) else every
        out = [0] * self.warps
        for unit in ids:
            if unit < self.threads:
                out[unit // self.width] |= 1 << unit % self.width
        return tuple(out)

    def along(self, cta: int, over: Sequence[Axis]) -> list[int]:
        """The CTAs along axes of their level from ``cta``, itself included; those that are
        not there are left out."""
        where = [{level: int(ids[cta]) for level, ids in self.at.items()}]
        for axis in over:
            moved: list[dict[str, int]] = []
            for at in where:
                first = at[axis.level] - self.coordinate(axis, cta, None) * axis.stride
                moved += [{**at, axis.level: first + n * axis.stride} for n in range(axis.extent)]
            where = moved
        numbers = {
            tuple(int(ids[n]) for ids in self.at.values()): n for n in range(self.ctas)
        }  # fmt: skip
        found = [numbers.get(tuple(at[level] for level in self.at)) for at in where]
        return [n for n in found if n is not None]

    def ordered(self, mesh: Mesh) -> Any:
        """Thread ids of ``mesh`` in coordinate order."""
        found = self._ordered.get(id(mesh))
        if found is None:
            at = mesh.at(self.level)
            found = np.array(mesh.units(self.level)) if at else np.arange(self.threads)
            self._ordered[id(mesh)] = found
        return found


class Held:
    """Who holds which element of a buffer in registers, and where; any unit reaches all of what
    lies in memory.

    ``owner[e]`` is the class of units that hold element e, ``register[e]`` its place there;
    a unit holds exactly the elements of its own class.
    """

    def __init__(self, buffer: Buffer, units: Units) -> None:
        self.units = units
        size = prod(buffer.shape)
        self.mesh = buffer.mesh if buffer.storage == REGISTERS else Mesh()
        self.digits = [d for d in buffer.type.digits if d.axis in self.mesh.axes]
        coords = np.unravel_index(np.arange(size), buffer.shape) if buffer.shape else ()
        self.owner: Any = np.zeros(size, np.int64)
        for digit in self.digits:
            at = coords[digit.dim] // digit.inner % digit.axis.extent
            self.owner = self.owner * digit.axis.extent + at
        order = np.argsort(self.owner, kind="stable")
        classes = prod(d.axis.extent for d in self.digits)
        self.count = size // max(classes, 1)
        self.register = np.empty(size, np.int64)
        self.register[order] = np.arange(size) % max(self.count, 1)
        self._classes: dict[int, Any] = {}

    def classes(self, cta: int, threads: Any) -> Any:
        """The class of each thread; -1 for one that is no unit of the buffer's mesh."""
        if cta not in self._classes:
            self._classes[cta] = self._all_classes(cta, np.arange(self.units.threads))
        return self._classes[cta][threads]

    def _all_classes(self, cta: int, threads: Any) -> Any:
        out = np.zeros(len(threads), np.int64)
        outside = np.zeros(len(threads), bool)
        for axis in self.mesh.axes:
            outside |= np.broadcast_to(self.units.coordinate(axis, cta, threads) < 0, out.shape)
        for digit in self.digits:
            out = out * digit.axis.extent + self.units.coordinate(digit.axis, cta, threads)
        out[outside] = -1
        return out


class Places:
    """Tables of one kernel: held elements, shared-memory addresses, elements of views."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.units = Units(func)
        self._held: dict[Buffer, Held] = {}
        self._address: dict[Buffer, Any] = {}
        self._grids: dict[tuple[int, ...], tuple[Any, ...]] = {}
        self._free: dict[View, tuple[Sym, ...]] = {}
        self._found: dict[Any, tuple[Any, Any]] = {}
        self._ranked: dict[Any, tuple[Any, Any]] = {}
        self.cache: dict[Any, Any] = {}

    def held(self, buffer: Buffer) -> Held:
        if buffer not in self._held:
            self._held[buffer] = Held(buffer, self.units)
        return self._held[buffer]

    def address(self, buffer: Buffer) -> Any:
        """Byte address of every element in slot 0, less the slot's offset.

        The swizzle acts on the whole byte address; a slot's offset is a multiple of its
        period, so that it may be added afterwards.
        """
        if buffer not in self._address:
            size, wide = prod(buffer.shape), buffer.dtype.bits // 8
            layout = buffer.layout
            if layout is None or layout.stride is None:
                out = np.arange(size) * wide
            else:
                coords = np.indices(tuple(layout.modes)).reshape(len(layout.modes), -1)  # type: ignore[arg-type]
                strides = np.array(layout.strides)
                # modes enumerate each axis in row-major order, as elements do
                out = (strides @ coords + layout.offset) * wide
            if layout is not None and layout.swizzle is not None:
                swizzle = layout.swizzle
                bits = out & swizzle.mask
                out = out ^ (bits >> swizzle.S if swizzle.S >= 0 else bits << -swizzle.S)
            self._address[buffer] = out
        return self._address[buffer]

    def free(self, view: View) -> tuple[Sym, ...]:
        """The symbols that the place of a view depends on."""
        if view not in self._free:
            found = frozenset().union(*(symbols(x) for x in view.index)) - set(view.vars)
            self._free[view] = tuple(sorted(found, key=lambda s: s.key))
        return self._free[view]

    def grid(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        if shape not in self._grids:
            self._grids[shape] = tuple(np.indices(shape).reshape(len(shape), prod(shape)))
        return self._grids[shape]

    def elements(self, view: View, env: Values) -> tuple[Any, Any]:
        """(element of the buffer, inside) for each element of the view, or for each lane
        and element where the view differs among lanes; ``inside`` None if all are."""
        key = tuple(env[s] for s in self.free(view))
        if any(isinstance(x, np.ndarray) for x in key):
            return self._elements(view, env)
        found = self._found.get((view, key))
        if found is None:
            if len(self._found) > 256:
                self._found.clear()
            found = self._found[view, key] = self._elements(view, env)
        return found

    def ranked(self, view: View, env: Values) -> tuple[Any, Any]:
        """(elements of the view, their owners), by owner; of a view that is the same for all
        lanes. Elements outside of the buffer come first."""
        key = (view, tuple(env[s] for s in self.free(view)))
        found = self._ranked.get(key)
        if found is None:
            if len(self._ranked) > 256:
                self._ranked.clear()
            element, inside = self.elements(view, env)
            owner = self.held(view.buffer).owner[element]
            if inside is not None:
                owner = np.where(inside, owner, -2)
            order = np.argsort(owner, kind="stable")
            found = self._ranked[key] = (order, owner[order])
        return found

    def _elements(self, view: View, env: Values) -> tuple[Any, Any]:
        size = prod(view.shape)
        here: dict[Sym, Any] = {**env, **dict(zip(view.vars, self.grid(view.shape), strict=True))}
        element: Any = np.zeros(size, np.int64)
        inside: Any = None
        for place, extent in zip(view.index, view.buffer.shape, strict=True):
            at = value(place, here)
            element = element * extent + at
            bad = (at < 0) | (at >= extent)
            if np.any(bad):
                good = ~np.broadcast_to(bad, element.shape)
                inside = good if inside is None else inside & good
        if inside is not None:
            inside = np.broadcast_to(inside, element.shape)
            element = np.where(inside, element, 0)
        return element, inside

    @cached_property
    def addressed(self) -> tuple[str, ...]:
        """Storages of which each CTA (core) has bytes that buffers have offsets in: shared
        memory, and register files whose tiles or rows instructions name."""
        own = (b.storage for b in self.used if b.storage not in (DEVICE, REGISTERS))
        return tuple(dict.fromkeys(own))

    @cached_property
    def numbers(self) -> dict[Buffer, int]:
        """Numbers from 1 to 255 that tell buffers apart, by what wrote a byte."""
        return {b: n % 255 + 1 for n, b in enumerate(self.used)}

    def moving(self, issue: Issue) -> tuple[int, ...] | None:
        """Which of the loops around an issue, outermost first, move what it writes; None where
        not all of its units in a CTA execute it as often."""
        return self._moving.get(issue)

    @cached_property
    def _moving(self) -> dict[Issue, tuple[int, ...] | None]:
        out: dict[Issue, tuple[int, ...] | None] = {}

        def visit(body: tuple[Stmt, ...], around: tuple[For, ...]) -> None:
            for stmt in body:
                if isinstance(stmt, Issue):
                    on = {s for v in stmt.writes for s in (*self.free(v), *symbols(v.slot))}
                    loops = tuple(n for n, x in enumerate(around) if x.var in on)
                    told = stmt not in out and not any(isinstance(s, Counter) for s in on)
                    out[stmt] = loops if told else None
                elif isinstance(stmt, With):
                    visit(stmt.body, around)
                elif isinstance(stmt, For):
                    if self._even(stmt.start, stmt.stop, stmt.step):
                        visit(stmt.body, (*around, stmt))
                elif isinstance(stmt, When) and self._even(stmt.test):
                    visit(stmt.body, around)

        visit(self.func.body, ())
        return out

    def _even(self, *xs: Dim) -> bool:
        """All units of a CTA see the same values."""
        found = (s for x in xs for s in symbols(x) if isinstance(s, Coord))
        return not any(s.axis is not None and s.axis.level == self.units.level for s in found)

    @cached_property
    def written(self) -> frozenset[Buffer]:
        """Buffers that some statement writes."""
        return frozenset(
            view.buffer
            for stmt, _ in walk(self.func.body)
            if isinstance(stmt, Issue)
            for view in stmt.writes
        )

    @cached_property
    def used(self) -> tuple[Buffer, ...]:
        """Every buffer: parameters, local ones, and any other that a statement names."""
        found = dict.fromkeys((*self.func.params, *self.func.buffers))
        for stmt, _ in walk(self.func.body):
            for view in views(stmt):
                found.setdefault(view.buffer)
        return tuple(found)
