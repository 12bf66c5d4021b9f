"""Operands as they are read: buffers, rings and barriers by name, subscripts, views."""

from __future__ import annotations

import ast
import enum
from dataclasses import dataclass
from typing import Any, NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.ir.expr import Dim, Expr
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.express import axis_of, evaluate
from tilefoundry.lang.forms import Instr, InstrPath
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import spell
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.tir.forms import AXES
from tilefoundry.tir.naming import ring_name
from tilefoundry.tir.program import Barrier, Buffer, Scalar, View, fresh_vars, whole


class Stated(tuple[Any, ...]):
    """``Layout(shape, strides)`` as written: strides that are stated stay so."""

    def __repr__(self) -> str:
        return f"Layout({', '.join(spell(x) for x in self if x is not None)})"


def stated(shape: Any, strides: Any = None) -> Stated:
    """``Layout(shape, strides)`` in a kernel."""
    return Stated((shape, strides))


def malformed(span: Span | None, expected: str, found: object, fix: str) -> NoReturn:
    """Refuse text that is not TIR."""
    refuse("tir-form", span, expected=expected, found=found, fix=fix)


def is_dim(x: object) -> bool:
    """Whether ``x`` is an index expression."""
    return isinstance(x, (int, Expr)) and not isinstance(x, bool)


@dataclass(frozen=True, eq=False)
class Seen:
    """A view, or the name of a buffer of one slot, which can be sliced further."""

    view: View
    text: str

    @property
    def is_name(self) -> bool:
        """It is a buffer's name, and no part of one."""
        return self.text == self.view.buffer.name

    def __getitem__(self, index: Any) -> Seen:
        items: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
        view, shape = self.view, list[int]()
        if len(items) > len(view.shape):
            found = f"{len(items)} of an operand of rank {len(view.shape)}"
            malformed(None, "one index for each axis at most", found, "leave the rest out")
        kept: list[tuple[Dim, int | None]] = []
        for n, extent in enumerate(view.shape):
            start, size = _edges(items[n] if n < len(items) else slice(None), extent)
            kept.append((start, size))
            shape += [size] if size is not None else []
        vars = fresh_vars(tuple(shape))
        left = iter(zip(vars, shape, strict=True))
        at: list[Dim] = []
        for start, size in kept:
            var, extent = next(left) if size is not None else (None, 1)
            at.append(start + var.expr() if var is not None and extent != 1 else start)
        return Seen(view.through(tuple(shape), vars, tuple(at)), f"{self.text}[...]")

    def __repr__(self) -> str:
        return self.text


def _edges(item: Any, extent: int) -> tuple[Dim, int | None]:
    """Start and extent of one index; no extent for an axis that is dropped."""
    if is_dim(item):
        return item, None
    if isinstance(item, slice) and item.step is None:
        start = 0 if item.start is None else item.start
        stop = extent if item.stop is None else item.stop
        if is_dim(start) and is_dim(stop):
            size = stop - start
            if isinstance(size, int) and size > 0:
                return start, size
            found = f"an extent of {size}"
            malformed(None, "a window whose extent is known", found, "write start:start + extent")
    malformed(None, "an index or start:start + extent", spell(item), "write start:start + extent")


@dataclass(frozen=True, eq=False)
class Ring:
    """The slots of a buffer, one of which a subscript takes."""

    buffer: Buffer

    def __getitem__(self, slot: Any) -> Seen:
        name = ring_name(self.buffer)
        if not is_dim(slot):
            malformed(None, "the slot of a ring", spell(slot), f"write {name}[slot]")
        return Seen(whole(self.buffer, slot), f"{name}[...]")

    def __repr__(self) -> str:
        return f"the ring {ring_name(self.buffer)}"


@dataclass(frozen=True, eq=False)
class BarrierAt:
    """``full[slot]``, or ``full`` for all of them or the only one."""

    barrier: Barrier
    slot: Dim = 0

    def __getitem__(self, slot: Any) -> BarrierAt:
        name = self.barrier.name
        if not is_dim(slot):
            malformed(None, "the slot of a barrier", spell(slot), f"write {name}[slot]")
        return BarrierAt(self.barrier, slot)

    def __repr__(self) -> str:
        return f"the barrier {self.barrier.name}"


def declared(buffer: Buffer) -> Ring | Seen:
    """What the name of a buffer stands for."""
    return Ring(buffer) if buffer.slots > 1 else Seen(whole(buffer), buffer.name)


# Operands of an instruction


def read_operand(frame: Frame, node: ast.expr, default: DType | None) -> View | Scalar:
    """A view or a number; a number without a type has ``default``."""
    span = frame.span(node)
    if (path := called(frame, node)) == "view":
        assert isinstance(node, ast.Call)
        return _view(frame, node)
    value = evaluate(frame, node)
    if isinstance(value, Seen):
        return value.view
    if isinstance(value, Instr) and path in DTYPES and len(value.args) == 1 and not value.params:
        return Scalar(value.args[0], DTYPES[value.path])
    if isinstance(value, (int, float, Expr)) and default is not None:
        return Scalar(value, default)
    malformed(span, "a buffer, a part of one or a number", spell(value), _instead(value))


def _instead(value: Any) -> str:
    if isinstance(value, Ring):
        return f"name a slot: {ring_name(value.buffer)}[slot]"
    return "write operands first, the destination last, parameters by name"


def called(frame: Frame, node: ast.expr) -> str | None:
    """``copy`` of ``T.copy(...)``, None for what is no call of ``T``."""
    if not isinstance(node, ast.Call):
        return None
    parts: list[str] = []
    func = node.func
    while isinstance(func, ast.Attribute):
        parts.insert(0, func.attr)
        func = func.value
    is_t = isinstance(func, ast.Name) and func.id == "T" and "T" not in frame.names
    return ".".join(parts) if is_t and parts else None


def _view(frame: Frame, node: ast.Call) -> View:
    """``T.view(buffer, shape=, index=lambda i, j: (...), slot=, fill=)``."""
    span = frame.span(node)
    given = {k.arg: k.value for k in node.keywords}
    if len(node.args) != 1 or not set(given) <= {"shape", "index", "slot", "fill"}:
        fix = "write T.view(x, shape=(...), index=lambda i, j: (...), fill=...)"
        malformed(span, "one buffer, and its shape and index", ast.unparse(node), fix)
    base = evaluate(frame, node.args[0])
    if not isinstance(base, Seen):
        malformed(frame.span(node.args[0]), "a buffer", spell(base), _instead(base))
    view = base.view
    words = {k: evaluate(frame, v) for k, v in given.items() if k != "index"}
    fill = words.get("fill")
    number = fill is None or type(fill) in (int, float)
    if not number or not is_dim(words.get("slot", 0)):
        fix = "write fill=0.0, and slot= as an index expression"
        malformed(span, "a number to fill with", ast.unparse(node), fix)
    if "slot" in words:
        view = View(view.buffer, view.shape, view.vars, view.index, words["slot"])
    if "index" not in given:
        return View(view.buffer, view.shape, view.vars, view.index, view.slot, fill)
    body = given["index"]
    shape = words.get("shape")
    sizes = isinstance(shape, tuple) and all(type(e) is int for e in shape)  # pyright: ignore[reportUnknownVariableType]
    names = [a.arg for a in body.args.args] if isinstance(body, ast.Lambda) else []
    if not isinstance(body, ast.Lambda) or not sizes or len(names) != len(shape or ()):
        fix = "write T.view(x, shape=(64, 8), index=lambda i, j: (...))"
        malformed(span, "an index of one variable for each axis", ast.unparse(node), fix)
    assert isinstance(shape, tuple)
    vars = fresh_vars(shape)
    kept = {**frame.names}
    frame.names.update({n: v.expr() for n, v in zip(names, vars, strict=True)})
    index = evaluate(frame, body.body)
    frame.names = kept
    whole_index = isinstance(index, tuple) and all(is_dim(x) for x in index)  # pyright: ignore[reportUnknownVariableType]
    if not whole_index or len(index) != len(view.shape):
        rank = len(view.shape)
        malformed(frame.span(body.body), f"{rank} index expressions", ast.unparse(body.body),
                  "give one for each axis of the buffer")  # fmt: skip
    return view.through(shape, vars, index, fill)


# Parameters of an instruction


def read_attrs(frame: Frame, node: ast.Call) -> dict[str, Any]:
    """The parameters that a call gives by name."""
    attrs: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            malformed(frame.span(node), "parameters by name", "**", "write each of them out")
        value = evaluate(frame, keyword.value)
        if isinstance(value, BarrierAt):
            attrs[keyword.arg] = value.barrier
            attrs |= {"slot": value.slot} if keyword.arg == "barrier" else {}
        elif keyword.arg in AXES:
            attrs[keyword.arg] = read_axes(frame, keyword.value, value)
        else:
            attrs[keyword.arg] = _value(frame, keyword.value, value)
    return attrs


def _value(frame: Frame, node: ast.expr, value: Any) -> Any:
    match value:
        case InstrPath() if value.path in DTYPES:
            return DTYPES[value.path]
        case Instr(path="layout", args=(given,)):
            return layout_from(given, frame.span(node))
        case Instr(path="axis", args=(given,)):
            return _axis(frame, node, given)
        case Instr():
            args = tuple(_value(frame, node, v) for v in value.args)
            params = tuple((k, _value(frame, node, v)) for k, v in value.params)
            return Instr(value.path, args, params)
        case Stated():
            return Layout(*(x for x in value if x is not None))
        case tuple() | list():
            return tuple(_value(frame, node, v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        case Ring():
            return value.buffer
        case Seen() if value.is_name:
            return value.view.buffer
        case None | bool() | int() | float() | str() | enum.Enum():
            return value
        case Expr() | InstrPath() | Swizzle() | TensorType() | ShardLayout():
            return value
    fix = "give numbers, strings, tuples of them, index expressions or instructions by name"
    malformed(frame.span(node), "a parameter", spell(value), fix)


def read_axes(frame: Frame, node: ast.expr, value: Any) -> tuple[Axis, ...]:
    """``(mesh.axis, ...)``, or one of them."""
    axes: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    return tuple(_axis(frame, node, v) for v in axes)


def _axis(frame: Frame, node: ast.expr, value: Any) -> Axis:
    axis = axis_of(value)
    if axis is None:
        malformed(frame.span(node), "an axis of a mesh", spell(value), "write mesh.axis")
    return axis


__all__ = [
    "BarrierAt",
    "Ring",
    "Seen",
    "Stated",
    "called",
    "declared",
    "is_dim",
    "malformed",
    "read_attrs",
    "read_axes",
    "read_operand",
    "stated",
]
