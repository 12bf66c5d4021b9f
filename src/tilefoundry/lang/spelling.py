"""Expressions, layouts, types and attribute values as source text.

What an axis or a symbol is called depends on where it stands: :class:`Place` keeps the
mesh bindings and loop variables that are visible there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tilefoundry.diag import Refusal
from tilefoundry.ir import expr as ix
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, Expr, LoopVar, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh, narrow
from tilefoundry.ir.shard import Nest, ShardLayout, split_mode
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.forms import Instr, InstrPath
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

Word = Callable[[str], str]
"""What a name of the language is called in this file."""


def tuple_text(items: list[str]) -> str:
    """``()``, ``(a,)``, ``(a, b)``."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def index_text(index: tuple[int | slice, ...]) -> str:
    """``0, :32`` of (0, slice(None, 32))."""
    words: list[str] = []
    for item in index:
        if isinstance(item, slice):
            ends = ["" if e is None else str(e) for e in (item.start, item.stop)]
            words.append(":".join(ends))
        else:
            words.append(str(item))
    return ", ".join(words)


@dataclass(eq=False)
class Bound:
    """A mesh binding: the author's name for it, its name here, its mesh."""

    written: str
    name: str
    mesh: Mesh
    open: bool = True


@dataclass(eq=False)
class Place:
    """A place in a function: what is visible, and how it is called there."""

    word: Word
    dim_name: Callable[[OpenDim], str]
    bindings: list[Bound] = field(default_factory=list)
    loops: dict[Sym, tuple[LoopVar, str]] = field(default_factory=dict)
    """Each loop variable as one of the name it has here, and its text."""
    used: set[str] = field(default_factory=set)
    """Names of bindings that were referred to."""

    # Symbols

    def dim(self, x: Dim) -> str:
        """An index expression."""
        if not isinstance(x, Expr):
            return str(x)
        # terms are ordered by name: first rename, then render
        renamed = ix.substitute(x, {s: new.expr() for s, (new, _) in self.loops.items()})
        texts: dict[Sym, str] = dict(self.loops.values())
        return ix.render(renamed, lambda s: texts.get(s) or self._symbol(s), self.word)

    def _symbol(self, s: Sym) -> str:
        if isinstance(s, OpenDim):
            return self.dim_name(s)
        assert isinstance(s, Coord) and s.axis is not None, f"{s} is not visible here"
        return self.axis(s.axis)

    def axis(self, axis: Axis) -> str:
        """``cta.row``, or through a slice: ``threads[1:3].warpgroup``."""
        found = self.visible(axis)
        assert found is not None, f"no binding in sight has the axis {axis}"
        name, text = found
        self.used.add(name)
        return text

    def visible(self, axis: Axis) -> tuple[str, str] | None:
        """The binding that ``axis`` is reached through, and its text; None if there is none."""
        inner = [b for b in reversed(self.bindings) if b.open]
        nearest = inner + [b for b in reversed(self.bindings) if not b.open]
        for b in nearest:
            if b.mesh.find(axis.name) == axis:
                return b.name, f"{b.name}.{axis.name}"
        for b in nearest:
            index = _slice_with(b.mesh, axis)
            if index is not None:
                return b.name, f"{b.name}[{index_text(index)}].{axis.name}"
        return None

    # Layouts

    def layout(self, layout: ShardLayout) -> str:
        """A sharded layout in tuple form."""
        body = self._modes(layout)
        if layout.offset:
            body += f" + {layout.offset}"
        if layout.swizzle is not None:
            body += f" | {self.swizzle(layout.swizzle)}"
        if layout.partial:
            if layout.offset or layout.swizzle is not None:
                body = f"({body})"
            tags = [f'{self.axis(a)} @ {self.word("P")}("{k}")' for a, k in layout.partial]
            body += f" @ {{{', '.join(tags)}}}"
        return body

    def _modes(self, layout: ShardLayout) -> str:
        """Shape and strides, the shape alone where strides are the default."""
        bound = iter(layout.axes or (None,) * len(layout.modes))
        words: list[str] = []
        nested: list[bool] = []
        for n, top in enumerate(layout.shape):
            text = self._mode(top, bound)
            whole = self._fold(layout, n) if layout.stride is None else None
            words.append(whole or text)
            nested.append(isinstance(top, tuple) and whole is None)
        if layout.stride is not None:
            return f"({tuple_text(words)}, {self._plain(layout.stride)})"
        if len(nested) == 2 and all(nested):  # two tuples alone would be shape and strides
            return f"({tuple_text(words)}, None)"
        return tuple_text(words)

    def _mode(self, mode: Nest, bound: Iterator[Axis | None]) -> str:
        if isinstance(mode, tuple):
            return tuple_text([self._mode(m, bound) for m in mode])
        axis = next(bound)
        return self._plain(mode) if axis is None else self._split(mode, axis)

    def _split(self, extent: Dim, axis: Axis) -> str:
        text = self.dim(extent)
        return (
            f"{text} @ {self.axis(axis)}"
            if isinstance(extent, int)
            else f"({text}) @ {self.axis(axis)}"
        )

    def _fold(self, layout: ShardLayout, n: int) -> str | None:
        """A mode that is an axis' extent and a rest, as the one split it came from."""
        top = layout.shape[n]
        if not isinstance(top, tuple) or len(top) != 2 or not layout.axes:
            return None
        outer, rest = top
        at = len(ShardLayout(layout.shape[:n]).modes)
        axis, other = layout.axes[at : at + 2]
        if axis is None or other is not None or isinstance(outer, tuple) or isinstance(rest, tuple):
            return None
        whole = outer * rest
        return self._split(whole, axis) if _parts(whole, axis) == top else None

    def _plain(self, nest: Any) -> str:
        if isinstance(nest, tuple):
            return tuple_text([self._plain(x) for x in nest])
        return self.dim(nest)

    def swizzle(self, swizzle: Swizzle) -> str:
        return f"{self.word('Swizzle')}({swizzle.B}, {swizzle.M}, {swizzle.S})"

    # Types and values

    def type(self, type: TensorType, form: str = "Tensor") -> str:
        """``Tensor[shape, dtype(, layout)(, storage)]``."""
        parts = [self._plain(type.shape), f'"{type.dtype}"']
        if type.layout is not None:
            parts.append(self.layout(type.layout))
        if type.storage != "gmem":
            parts.append(f'"{type.storage}"')
        return f"{self.word(form)}[{', '.join(parts)}]"

    def value(self, value: Any) -> str:
        """An attribute or a parameter of an instruction."""
        match value:
            case None | bool() | int():
                return str(value)
            case float():
                finite = value == value and abs(value) != float("inf")
                return repr(value) if finite else f'{self.word("float")}("{value}")'
            case str():
                return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            case Expr():
                return self.dim(value)
            case DType():
                return f'"{value}"'
            case TensorType():
                return self.type(value)
            case ShardLayout():
                return self.layout(value)
            case tuple() | list():
                return tuple_text([self.value(v) for v in value])
            case Instr():
                words = [self.value(a) for a in value.args]
                words += [f"{k}={self.value(v)}" for k, v in value.params]
                return f"{self.word('T')}.{value.path}({', '.join(words)})"
            case InstrPath():
                return f"{self.word('T')}.{value.path}"
            case Swizzle():
                return self.swizzle(value)
            case Layout():
                nests = f"{self._plain(value.shape)}, {self._plain(value.strides)}"
                return f"{self.word('Layout')}({nests})"
            case ComposedLayout():
                tail = f" | {self.swizzle(value.swizzle)}" if value.swizzle else ""
                return f"{self.value(value.layout)} + {self._plain(value.offset)}{tail}"
            case enum.Enum():
                return f"{self.word(type(value).__name__)}.{value.name}"
        raise AssertionError(f"a value that has no source form: {value!r}")


def _parts(extent: Dim, axis: Axis) -> tuple[Dim, ...] | None:
    try:
        return split_mode(extent, axis)
    except Refusal:
        return None


def _slice_with(mesh: Mesh, axis: Axis) -> tuple[int | slice, ...] | None:
    """The slice of ``mesh`` that has ``axis``, None if no slice has."""
    mine = [(n, a) for n, a in enumerate(mesh.axes) if a.level == axis.level]
    at = next((n for n, a in mine if (a.name, a.stride) == (axis.name, axis.stride)), None)
    if at is None or axis.extent > mesh.axes[at].extent:
        return None
    shift = axis.offset - mesh.axes[at].offset
    index: list[int | slice] = [slice(None)] * len(mesh.axes)
    for n, a in sorted(mine, key=lambda item: -item[1].stride):
        room = a.extent - axis.extent if n == at else a.extent - 1
        start = min(max(shift, 0) // a.stride, room)
        shift -= start * a.stride
        index[n] = slice(start, start + axis.extent) if n == at else start
    try:
        return tuple(index) if narrow(mesh, tuple(index)).find(axis.name) == axis else None
    except Refusal:
        return None
