"""Index expressions, views, layouts and attribute values of TIR as source text.

An index has every operand of an operator in parentheses, coefficients behind what they
multiply, and its terms by falling coefficient, then outermost loop first:
``((((task - cta.persistent) // 132) * 80) + (k // 64)) % 3``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any, NoReturn

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, MinMax, Mono, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lang.scopes import declared_text, scope_text
from tilefoundry.lang.spelling import Bound, Place, index_text, tuple_text
from tilefoundry.layout import ComposedLayout
from tilefoundry.tir.forms import AXES, implied
from tilefoundry.tir.naming import WORDS, fresh, ring_name
from tilefoundry.tir.program import Barrier, Buffer, For, Operand, View, With

INNERMOST = 1 << 20
"""Depth of symbols that no loop or scope binds."""


class TirPlace(Place):
    """A place in a kernel: the scopes and loops around it."""

    def __init__(self, taken: set[str]) -> None:
        super().__init__(lambda word: word, _open)
        self._taken = set(taken) | WORDS
        self._depths: dict[Sym | Axis, tuple[int, int]] = {}
        self._level = 0
        self._vars: dict[Sym, str] = {}

    # Where it stands

    @contextmanager
    def scope(self, scope: With) -> Iterator[None]:
        """Inside a mesh scope."""
        own = {axis: (self._level, n) for n, axis in enumerate(scope.own.axes)}
        bound = Bound(scope.binding, scope.binding, scope.own)
        self.bindings.append(bound)
        with self._inside(scope.binding, {**own, **self._depths}):
            yield
        self.bindings.remove(bound)

    @contextmanager
    def loop(self, loop: For) -> Iterator[None]:
        """Inside a loop."""
        with self._inside(loop.var.name, {**self._depths, loop.var: (self._level, 0)}):
            yield

    @contextmanager
    def _inside(self, name: str, depths: dict[Sym | Axis, tuple[int, int]]) -> Iterator[None]:
        before, self._depths = self._depths, depths
        self._level += 1
        self._taken.add(name)
        yield
        self._taken.remove(name)
        self._level -= 1
        self._depths = before

    def mesh(self, own: Mesh, source: str) -> str:
        """The mesh of a scope, as it narrows a scope around it if that gives its units."""
        found = scope_text(self, own, source) if source else self._narrowed(own)
        return declared_text(self, own) if found is None else found

    def _narrowed(self, own: Mesh) -> str | None:
        """``own`` as a part of the nearest scope of its level, where it is one."""
        if len(own.levels) != 1:
            return None
        level = own.levels[0]
        for b in reversed(self.bindings):
            if b.open and b.mesh.levels == own.levels:
                index = _box(b.mesh, set(own.units(level)))
                source = f"{b.name}[{index_text(index)}]"
                return scope_text(self, own, source) if index else None
        return None

    # Index expressions

    def dim(self, x: Dim) -> str:
        """An index expression that stands alone."""
        return self._sum(x, True)

    def grouped(self, x: Dim) -> str:
        """An index expression as an operand."""
        return self._sum(x, False)

    def _sum(self, x: Dim, alone: bool) -> str:
        if not isinstance(x, Expr):
            return str(x) if x >= 0 or alone else f"({x})"
        terms = x.terms
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1:
            return self._atom(terms[0][0][0], alone)
        ordered = sorted(terms, key=self._order) if len(terms) > 1 else list(terms)
        if ordered[0][1] < 0 and ordered[-1][1] > 0:  # a constant behind negative terms alone
            ordered.insert(0, ordered.pop())
        words: list[str] = []
        for n, (mono, coef) in enumerate(ordered):
            sign = " + " if coef > 0 else " - "
            lead = "" if n == 0 and coef > 0 else "-" if n == 0 else sign
            words.append(lead + self._term(mono, abs(coef), alone and len(ordered) == 1))
        text = "".join(words)
        bare = alone or (len(ordered) == 1 and ordered[0][1] > 0)
        return text if bare else f"({text})"

    def _term(self, mono: Mono, coef: int, alone: bool) -> str:
        if not mono:
            return str(coef)
        if coef == 1 and len(mono) == 1:
            return self._atom(mono[0], alone)
        factors = [self._atom(a, False) for a in sorted(mono, key=self._depth)]
        text = " * ".join([*factors, str(coef)] if coef != 1 else factors)
        return text if alone else f"({text})"

    def _atom(self, atom: Atom, alone: bool) -> str:
        if isinstance(atom, MinMax):
            return f"{atom.name}({', '.join(self._sum(a, True) for a in atom.args)})"
        if isinstance(atom, Sym):
            return self._symbol(atom)
        assert hasattr(atom, "num") and hasattr(atom, "den"), atom
        sign = "//" if isinstance(atom, FloorDiv) else "%"
        text = f"{self._sum(atom.num, False)} {sign} {self._sum(atom.den, False)}"  # type: ignore[attr-defined]
        return text if alone else f"({text})"

    def _symbol(self, s: Sym) -> str:
        if isinstance(s, Coord) and s.axis is not None:
            return self.axis(s.axis)
        return self._vars.get(s, s.name)

    def _order(self, term: tuple[Mono, int]) -> tuple[Any, ...]:
        mono, coef = term
        ranks = sorted(self._depth(a) for a in mono)
        return not mono, -coef, ranks

    def _depth(self, atom: Atom) -> tuple[tuple[int, int], str]:
        """How deep its outermost symbol is bound, then its text."""
        return min(self._ranks(atom), default=(INNERMOST, 0)), self._atom(atom, True)

    def _ranks(self, atom: Atom) -> Iterator[tuple[int, int]]:
        if isinstance(atom, Sym):
            key = atom.axis if isinstance(atom, Coord) else atom
            yield self._depths.get(key, (INNERMOST, 0)) if key else (INNERMOST, 0)
            return
        parts: Any = atom.args if isinstance(atom, MinMax) else (atom.num, atom.den)  # type: ignore[attr-defined]
        for part in parts:
            if isinstance(part, Expr):
                for mono, _ in part.terms:
                    for inner in mono:
                        yield from self._ranks(inner)

    # Operands

    def operand(self, operand: Operand, default: DType | None) -> str:
        """A view, or a number of which the type is written unless it is ``default``."""
        if isinstance(operand, View):
            return self.view(operand)
        text = self.value(operand.value)
        return text if operand.dtype is default else f"T.{operand.dtype}({text})"

    def view(self, view: View) -> str:
        """A whole buffer by name, a window as a slice, any other by its index."""
        buffer, words = view.buffer, list[str]()
        base = ring_name(buffer)
        if buffer.slots > 1:
            base += f"[{self.dim(view.slot)}]"
        elif view.slot != 0:
            words.append(f"slot={self.dim(view.slot)}")
        if not view.is_whole:
            window = self._window(view)
            if window is not None:
                base += f"[{window}]"
            else:
                words += [f"shape={self.value(view.shape)}", f"index={self._index(view)}"]
        if view.fill is not None:
            words.append(f"fill={self.value(view.fill)}")
        return f"T.view({', '.join([base, *words])})" if words else base

    def _window(self, view: View) -> str | None:
        """``m:m + 128, k`` of a window, None for another view."""
        if view.starts is None:
            return None
        words: list[str] = []
        left = list(zip(view.vars, view.shape, strict=True))
        for start, place, extent in zip(view.starts, view.index, view.buffer.shape, strict=True):
            var, size = left[0] if left else (None, 0)
            moves = place != start
            if moves and (var is None or place - start != var.expr()):
                return None  # an axis of extent 1 comes first, which is none of the buffer's
            if moves or size == 1:
                del left[0]
                stop = start + size
                full = start == 0 and size == extent
                words.append(":" if full else f"{self.dim(start)}:{self.dim(stop)}")
            else:
                words.append(self.dim(start))
        return ", ".join(words) if words and not left else None

    def _index(self, view: View) -> str:
        names: list[str] = []
        for n in range(len(view.vars)):
            wanted = "ijklmn"[n] if n < 6 else f"i{n}"
            names.append(fresh(wanted, {*self._taken, *names}))
        self._vars = dict(zip(view.vars, names, strict=True))
        depths = {v: (INNERMOST - 1, n) for n, v in enumerate(view.vars)}
        before, self._depths = self._depths, {**self._depths, **depths}
        body = tuple_text([self.dim(x) for x in view.index])
        self._vars, self._depths = {}, before
        return f"lambda {', '.join(names)}: {body}" if names else f"lambda: {body}"

    # Values

    def layout(self, layout: ShardLayout) -> str:
        """``Layout(shape, strides)``, in tuple form where a mode or a term is on an axis."""
        if any(layout.axes) or layout.partial:
            return super().layout(layout)
        nests = [self._plain(layout.shape)]
        nests += [self._plain(layout.stride)] if layout.stride is not None else []
        text = f"Layout({', '.join(nests)})"
        text += f" + {layout.offset}" if layout.offset else ""
        return text + (f" | {self.swizzle(layout.swizzle)}" if layout.swizzle else "")

    def barrier(self, barrier: Barrier, slot: Dim, every: bool = False) -> str:
        """``full[slot]``; the name alone for a single one, or for ``every`` one."""
        alone = slot == 0 and (every or barrier.slots == 1)
        return barrier.name if alone else f"{barrier.name}[{self.dim(slot)}]"

    def attrs(self, instr: str, attrs: Mapping[str, Any]) -> Iterator[str]:
        """``name=value`` of an instruction's parameters; a barrier with its slot, and no
        operation where it is the one that the instruction stands for."""
        for name, value in attrs.items():
            if name == "op" and value == implied(instr):
                continue
            if name == "barrier" and isinstance(value, Barrier):
                yield f"{name}={self.barrier(value, attrs.get('slot', 0))}"
            elif name == "slot" and isinstance(attrs.get("barrier"), Barrier):
                continue
            elif name in AXES:
                yield f"{name}={self.axes(value)}"
            else:
                yield f"{name}={self.value(value)}"

    def axes(self, axes: Iterable[Axis]) -> str:
        return tuple_text([self.axis(a) for a in axes])

    def value(self, value: Any) -> str:
        match value:
            case DType():
                return f"T.{value}"
            case Barrier():
                return value.name
            case Buffer():
                return ring_name(value)
            case ComposedLayout():
                raise AssertionError(f"a parameter that has no source form: {value}")
            case ShardLayout():
                return f"T.layout({self.layout(value)})"
            case Axis():
                return f"T.axis({self.axis(value)})"
            case _:
                return super().value(value)


def _box(mesh: Mesh, units: set[int]) -> tuple[int | slice, ...]:
    """The slice of a mesh of one level that has these units, () if none has."""
    extents = [range(a.extent) for a in mesh.axes]
    where = dict(zip(mesh.units(mesh.levels[0]), product(*extents), strict=True))
    at = [where[u] for u in units if u in where]
    if not at or len(at) != len(units):
        return ()
    ends = [(min(c), max(c) + 1) for c in zip(*at, strict=True)]
    if math.prod(hi - lo for lo, hi in ends) != len(units):
        return ()
    pairs = zip(ends, mesh.axes, strict=True)
    return tuple(slice(lo or None, None if hi == a.extent else hi) for (lo, hi), a in pairs)


def _open(dim: OpenDim) -> NoReturn:
    raise AssertionError(f"{dim} is open in a kernel, whose sizes are known")


__all__ = ["TirPlace"]
