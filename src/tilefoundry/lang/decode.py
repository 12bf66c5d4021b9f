"""The module that plain data states, as ``encode`` made it of a parsed one.

Reading executes nothing, makes objects of this file's closed list of kinds alone, and types
every operation anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from tilefoundry import target as targets
from tilefoundry.diag import Span
from tilefoundry.ir import expr as ix
from tilefoundry.ir import node as structural
from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.ir.expr import Dim, Expr, LoopVar, OpenDim
from tilefoundry.ir.mesh import Axis, Coord, Mesh, Topology
from tilefoundry.ir.node import Block, Carried, Loop, Node, Return, Scope, Structural
from tilefoundry.ir.program import Func, Module, Variant
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang import forms
from tilefoundry.lang.encode import KINDS
from tilefoundry.lang.parse import module_context
from tilefoundry.layout import ComposedLayout, Layout, Swizzle
from tilefoundry.ops import find
from tilefoundry.ops.base import Context, Op, call_of

STRUCTURAL: Mapping[str, Structural] = {
    op.name: op
    for op in (structural.PARAM, structural.CONST, structural.CARRY, structural.RESULT,
               structural.CALL, structural.ITEM)
}  # fmt: skip
BROKEN = (AttributeError, IndexError, KeyError, OverflowError, RecursionError,
          TypeError, ValueError, ZeroDivisionError)  # fmt: skip
"""What reading data of another form raises."""
T = TypeVar("T")


class NotAProgram(Exception):
    """Data that states no program; says what is wrong with it."""


def from_data(rows: object) -> Module:
    """The module that a table states; :class:`NotAProgram` for what states none, a refusal
    for operations that do not fit their operands."""
    try:
        made = _Reader().read(rows)
    except BROKEN as error:
        raise NotAProgram(f"{type(error).__name__}: {error}"[:200]) from None
    if not isinstance(made, Module):
        raise NotAProgram(f"it ends with a {type(made).__name__}")
    return made


class _Reader:
    """Objects by row, made in the order of the rows: a row refers to earlier ones only."""

    def __init__(self) -> None:
        self.made: list[object] = []
        self.contexts: dict[Module, Context] = {}

    def read(self, rows: object) -> object:
        if not isinstance(rows, list) or not rows:
            _bad("it is no table")
        for row in rows:
            if not isinstance(row, list) or not row:
                _bad("a row without a kind")
            make: Callable[..., object] = MAKERS[_text(row[0])]
            self.made.append(make(self, *row[1:]))
        return self.made[-1]

    def at(self, n: object, kind: type[T]) -> T:
        """The object of an earlier row."""
        number = _whole(n)
        found = self.made[number] if number >= 0 else None
        if not isinstance(found, kind):
            _bad(f"row {number} is a {type(found).__name__}")
        return found

    def of(self, value: object, kind: type[T]) -> T:
        """The object that ``{"row": n}`` refers to."""
        if not isinstance(value, dict):
            _bad(f"{value!r} is no reference")
        return self.at(value["row"], kind)

    def maybe(self, value: object, kind: type[T]) -> T | None:
        return None if value is None else self.of(value, kind)

    def value(self, x: Any) -> Any:
        if x is None or type(x) in (bool, int, float, str):
            return x
        if type(x) is list:
            return tuple(self.value(v) for v in x)
        if not isinstance(x, dict) or list(x) != ["row"]:
            _bad(f"{x!r} is no reference")
        return self.at(x["row"], VALUES)  # type: ignore[arg-type]

    def dim(self, x: object) -> Dim:
        """An extent: a whole number or an expression."""
        return x if type(x) is int else self.of(x, Expr)

    def nest(self, x: object) -> Any:
        return tuple(map(self.nest, x)) if type(x) is list else self.dim(x)

    # values

    def dtype(self, name: object) -> DType:
        return DTYPES[_text(name)]

    def expr(self, terms: Any) -> Dim:
        """Built up again, so that it has the form that sums and products have here."""
        total: Dim = 0
        for mono, coef in terms:
            value: Dim = _whole(coef)
            for atom in mono:
                found = self.value(atom)
                value = value * (found.expr() if isinstance(found, ix.Atom) else found)
            total = total + value
        return total

    def open(self, name: object, lo: object, hi: object) -> OpenDim:
        return OpenDim(_text(name), _whole(lo), _bound(hi))

    def coord(self, name: object, axis: object, binding: object) -> Coord:
        found = self.of(axis, Axis)
        return Coord(_text(name), 0, found.extent - 1, axis=found, binding=_text(binding))

    def loop_var(self, name: object, lo: object, hi: object, multiple: object) -> LoopVar:
        return LoopVar(_text(name), _bound(lo), _bound(hi), _whole(multiple))

    def floordiv(self, num: object, den: object) -> Any:
        return _atom(ix.floordiv(self.dim(num), self.dim(den)))

    def mod(self, num: object, den: object) -> Any:
        return _atom(ix.mod(self.dim(num), self.dim(den)))

    def minmax(self, name: object, args: Any) -> Any:
        pick = {"min": ix.minimum, "max": ix.maximum}[_text(name)]
        return _atom(pick(*map(self.dim, args)))

    def axis(self, level: object, name: object, *numbers: object) -> Axis:
        extent, stride, offset = map(_whole, numbers)
        return Axis(_text(level), _text(name), extent, stride, offset)

    def mesh(self, axes: Any, sizes: Any) -> Mesh:
        return Mesh(
            tuple(self.of(a, Axis) for a in axes),
            tuple((_text(level), _whole(size)) for level, size in sizes),
        )

    def shard(
        self,
        shape: object,
        stride: object,
        axes: Any,
        partial: Any,
        swizzle: object,
        offset: object,
    ) -> ShardLayout:
        return ShardLayout(
            self.nest(shape),
            None if stride is None else self.nest(stride),
            tuple(self.maybe(a, Axis) for a in axes),
            tuple((self.of(a, Axis), _text(kind)) for a, kind in partial),
            self.maybe(swizzle, Swizzle),
            _whole(offset),
        )

    def swizzle(self, *bits: object) -> Swizzle:
        return Swizzle(*map(_whole, bits))

    def layout(self, shape: object, strides: object) -> Layout:
        return Layout(self.nest(shape), self.nest(strides))

    def composed(self, swizzle: object, offset: object, layout: object) -> ComposedLayout:
        return ComposedLayout(
            self.maybe(swizzle, Swizzle), self.dim(offset), self.of(layout, Layout)
        )

    def tensor(self, shape: Any, dtype: object, layout: object, storage: object) -> TensorType:
        made = TensorType(
            tuple(map(self.dim, shape)), self.of(dtype, DType), self.maybe(layout, ShardLayout),
            _text(storage),
        )  # fmt: skip
        _need(all(ix.bounds(extent)[1] >= 0 for extent in made.shape), "a negative extent")
        if made.layout is not None:
            made.layout.groups(made.shape)
        return made

    def items(self, items: Any) -> TupleType:
        return TupleType(tuple(self.of(t, TensorType) for t in items))

    def span(self, file: object, *numbers: object) -> Span:
        return Span(_text(file), *map(_whole, numbers))

    def instr(self, path: object, args: Any, params: Any) -> forms.Instr:
        named = tuple((_text(name), self.value(value)) for name, value in params)
        return forms.Instr(_text(path), self.value(args), named)

    def instr_path(self, path: object) -> forms.InstrPath:
        return forms.InstrPath(_text(path))

    # statements

    def node(
        self, op: object, args: Any, attrs: Any, type: object, span: object, mesh: object,
        name: object,
    ) -> Node:  # fmt: skip
        known = STRUCTURAL.get(_text(op)) or find(_text(op))
        if known is None:
            _bad(f"no operation {op}")
        given = {_text(key): self.value(value) for key, value in attrs}
        return Node(
            known,
            tuple(self.at(a, Node) for a in args),
            given,
            self.of(type, TensorType | TupleType),  # type: ignore[arg-type]
            self.maybe(span, Span),
            self.of(mesh, Mesh),
            _text(name),
        )

    def returned(self, values: Any, span: object) -> Return:
        return Return(tuple(self.at(v, Node) for v in values), self.maybe(span, Span))

    def scope(
        self, own: object, mesh: object, binding: object, body: Any, span: object, source: object
    ) -> Scope:
        return Scope(
            self.of(own, Mesh), self.of(mesh, Mesh), _text(binding), self.block(body),
            self.maybe(span, Span), _text(source),
        )  # fmt: skip

    def loop(
        self, var: object, start: object, stop: object, step: object, window: object,
        carried: Any, body: Any, span: object,
    ) -> Loop:  # fmt: skip
        kept = tuple(Carried(_text(name), *(self.at(n, Node) for n in four))
                     for name, *four in carried)  # fmt: skip
        _need(all(c.head.type == c.result.type == c.init.type for c in kept), "types of a loop")
        return Loop(
            self.of(var, LoopVar),
            self.dim(start),
            self.dim(stop),
            self.dim(step),
            kept,
            self.block(body),
            self.maybe(span, Span),
            None if window is None else self.dim(window),
        )  # fmt: skip

    def block(self, rows: Any) -> Block:
        return Block(tuple(self.at(n, Node | Scope | Loop | Return) for n in rows))  # type: ignore[arg-type]

    # modules

    def head(self, entry: object, target: Any, topologies: Any, span: object) -> Module:
        """A module without its functions, and what its target offers to operations."""
        named = None
        if target is not None:
            record, id = target
            named = _record(_text(record))(_text(id))
        sizes = tuple(Topology(_text(level), _whole(size)) for level, size in topologies)
        made = Module("", _text(entry), named, sizes, {}, {}, self.maybe(span, Span))
        self.contexts[made] = module_context(made)
        return made

    def func(
        self, name: object, head: object, params: Any, weights: Any, body: Any, returns: object,
        result: object, span: object, opens: Any, variants: Any,
    ) -> Func:  # fmt: skip
        made = Func(
            _text(name),
            tuple(self.at(p, Node) for p in params),
            frozenset(map(_text, weights)),
            self.block(body),
            self.at(returns, Return),
            self.of(result, TensorType | TupleType),  # type: ignore[arg-type]
            self.of(span, Span),
            tuple(self.of(o, OpenDim) for o in opens),
            tuple(Variant(_text(dim), _whole(lo), _whole(hi), self.at(n, Func))
                  for dim, lo, hi, n in variants),
        )  # fmt: skip
        _hold_types(made, self.contexts[self.at(head, Module)])
        return made

    def module(self, name: object, head: object, funcs: Any, children: Any, names: Any) -> Module:
        known = self.at(head, Module)
        held = {_text(key): self.at(n, Func) for key, n in funcs}
        for f in held.values():
            for node in structural.nodes(f.body):
                if node.op is structural.CALL:
                    _hold_call(node, held[_text(node.attrs["func"])])
        return Module(
            _text(name),
            known.entry,
            known.target,
            known.topologies,
            held,
            {_text(key): self.at(n, Module) for key, n in children},
            known.span,
            {_text(a): _text(b) for a, b in names},
        )


VALUES = (DType | Expr | ix.Atom | int | ShardLayout | Axis | Mesh | Swizzle | Layout
          | ComposedLayout | TensorType | TupleType | forms.Instr | forms.InstrPath
          | forms.ReduceKind | forms.UnaryKind | forms.BinaryKind)  # fmt: skip
MAKERS: Mapping[str, Callable[..., object]] = {
    "DType": _Reader.dtype, "Expr": _Reader.expr, "OpenDim": _Reader.open,
    "Coord": _Reader.coord, "LoopVar": _Reader.loop_var, "FloorDiv": _Reader.floordiv,
    "Mod": _Reader.mod, "MinMax": _Reader.minmax, "Axis": _Reader.axis, "Mesh": _Reader.mesh,
    "ShardLayout": _Reader.shard, "Swizzle": _Reader.swizzle, "Layout": _Reader.layout,
    "ComposedLayout": _Reader.composed, "TensorType": _Reader.tensor, "TupleType": _Reader.items,
    "Span": _Reader.span, "Instr": _Reader.instr, "InstrPath": _Reader.instr_path,
    "Node": _Reader.node, "Return": _Reader.returned, "Scope": _Reader.scope,
    "Loop": _Reader.loop, "Head": _Reader.head, "Func": _Reader.func, "Module": _Reader.module,
    **{name: lambda _, member, kind=kind: kind[_text(member)] for name, kind in KINDS.items()},
}  # fmt: skip
"""What each kind of row makes: nothing else can be made."""


def _record(name: str) -> type[targets.TargetRef]:
    """How a program may name its target."""
    found = getattr(targets, name, None)
    if not (isinstance(found, type) and issubclass(found, targets.TargetRef)):
        _bad(f"no target is named by {name}")
    return found


def _bad(why: str) -> NoReturn:
    raise ValueError(why)


def _need(holds: bool, why: str) -> None:
    if not holds:
        _bad(why)


def _text(x: object) -> str:
    if type(x) is not str:
        _bad(f"{x!r} is no string")
    return x


def _whole(x: object) -> int:
    if type(x) is not int:
        _bad(f"{x!r} is no whole number")
    return x


def _bound(x: object) -> int | float:
    return math.inf if x == math.inf else _whole(x)


def _atom(x: Dim) -> Any:
    """The one atom of an expression; the expression where it came out simpler."""
    if isinstance(x, Expr) and len(x.terms) == 1 and x.terms[0][1] == 1:
        mono = x.terms[0][0]
        return mono[0] if len(mono) == 1 else x
    return x


def _hold_call(node: Node, callee: Func) -> None:
    names = node.attrs["names"]
    if not isinstance(names, tuple) or len(names) != len(node.args):
        _bad("a call without its names")
    known = {p.name for p in callee.params}
    _need(known - set(callee.weights) <= set(map(_text, names)) <= known, f"a call of {names}")


def _hold_types(func: Func, context: Context) -> None:
    """Every operation's type is what its rule gives; refuses as the parser does."""
    for node in structural.nodes(func.body):
        if isinstance(node.op, Op):
            stated, found = node.type, node.op.infer(call_of(node, context))
            _need(stated == found, f"{node.op.name} gives {found}, not {stated}")
        elif node.op is structural.ITEM:
            (whole,) = node.args
            index = _whole(node.attrs["index"])
            if not isinstance(whole.type, TupleType) or index < 0:
                _bad("an item of no tuple")
            _need(node.type == whole.type.items[index], f"item {index} of {whole.type}")
    given = tuple(v.type for v in func.returns.values)
    if given:
        results = func.result.items if isinstance(func.result, TupleType) else (func.result,)
        _need(given == results, f"{func.name} returns {given}, not {results}")


__all__ = ["NotAProgram", "from_data"]
