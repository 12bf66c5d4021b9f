"""A parsed module as plain data: what ``decode`` reads back.

An author's file is Python: what it executes may change any module of the process it runs in.
So a file is executed in one process and what it declares is judged in another, which takes it
as data: numbers, strings, lists and references between rows of one table.
"""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Expr, FloorDiv, LoopVar, MinMax, Mod, OpenDim
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.node import Block, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang import forms
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

Row = list[Any]
Rows = list[Row]
KINDS = {kind.__name__: kind for kind in (forms.ReduceKind, forms.UnaryKind, forms.BinaryKind)}


def to_data(module: Module) -> Rows:
    """``module`` with its children as a table; its last row is the module itself.

    Refuses a program that holds a Python object which is no part of the language.
    """
    writer = _Writer()
    writer.module(module)
    return writer.rows


class _Writer:
    """Rows so far, and the number of each object that has one."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self._known: dict[int, int] = {}
        self._kept: list[object] = []
        """Objects that have a row: a number of one that is gone may come again."""

    def module(self, m: Module) -> int:
        if id(m) in self._known:
            return self._known[id(m)]
        children = [[name, self.module(child)] for name, child in m.children.items()]
        target = None if m.target is None else [type(m.target).__name__, str(m.target.id)]
        topologies = [[t.level, t.size] for t in m.topologies]
        head = self._row(("Head", m.entry, target, topologies, self.value(m.span)))
        funcs = [[name, self.func(f, head)] for name, f in m.funcs.items()]
        names = [[str(k), str(v)] for k, v in m.weight_names.items()]
        return self._row(("Module", m.name, head, funcs, children, names), m)

    def func(self, f: Func, head: int) -> int:
        if id(f) in self._known:
            return self._known[id(f)]
        variants = [[v.dim, v.lo, v.hi, self.func(v.func, head)] for v in f.variants]
        params = [self.node(p) for p in f.params]
        body = self.block(f.body)
        if id(f.returns) not in self._known:  # a function of specialisations has none of its own
            self.stmt(f.returns)
        return self._row(
            ("Func", f.name, head, params, sorted(f.weights), body, self._known[id(f.returns)],
             self.value(f.result), self.value(f.span), [self.value(o) for o in f.opens], variants),
            f,
        )  # fmt: skip

    def block(self, block: Block) -> list[int]:
        return [self.stmt(s) for s in block.stmts]

    def stmt(self, s: object) -> int:
        match s:
            case Node():
                return self.node(s)
            case Return():
                values = [self.node(v) for v in s.values]
                return self._row(("Return", values, self.value(s.span)), s)
            case Scope():
                own, mesh = self.value(s.own), self.value(s.mesh)
                body = self.block(s.body)
                return self._row(
                    ("Scope", own, mesh, s.binding, body, self.value(s.span), s.source), s
                )
            case Loop():
                ends = [self.value(x) for x in (s.var, s.start, s.stop, s.step, s.window)]
                firsts = [(c.name, self.node(c.init), self.node(c.head)) for c in s.carried]
                body = self.block(s.body)
                carried = [
                    [*first, self.node(c.step), self.node(c.result)]
                    for first, c in zip(firsts, s.carried, strict=True)
                ]
                return self._row(("Loop", *ends, carried, body, self.value(s.span)), s)
            case _:
                _foreign(s)

    def node(self, n: Node) -> int:
        if id(n) in self._known:
            return self._known[id(n)]
        args = [self._known[id(a)] for a in n.args]
        attrs = [[name, self.value(value)] for name, value in n.attrs.items()]
        return self._row(
            ("Node", n.op.name, args, attrs, self.value(n.type), self.value(n.span),
             self.value(n.mesh), n.name),
            n,
        )  # fmt: skip

    def value(self, x: Any) -> Any:
        """A number, a string, a list for a tuple, ``{"row": n}`` for all else."""
        if x is None or type(x) in (bool, int, float, str):
            return x
        if type(x) is tuple:
            return [self.value(v) for v in x]
        if id(x) in self._known:
            return {"row": self._known[id(x)]}
        made = self._fields(x)
        return {"row": self._row((type(x).__name__, *map(self.value, made)), x)}

    def _fields(self, x: Any) -> tuple[Any, ...]:
        """What states a value of the language."""
        match x:
            case DType():
                return (x.name,)
            case Expr():
                return (tuple((mono, coef) for mono, coef in x.terms),)
            case OpenDim():
                return x.name, x.lo, x.hi
            case Coord():
                return x.name, x.axis, x.binding
            case LoopVar():
                return x.name, x.lo, x.hi, x.multiple
            case FloorDiv() | Mod():
                return x.num, x.den
            case MinMax():
                return x.name, x.args
            case Axis():
                return x.level, x.name, x.extent, x.stride, x.offset
            case Mesh():
                return x.axes, x.sizes
            case ShardLayout():
                return x.shape, x.stride, x.axes, x.partial, x.swizzle, x.offset
            case Swizzle():
                return x.B, x.M, x.S
            case Layout():
                return x.shape, x.strides
            case ComposedLayout():
                return x.swizzle, x.offset, x.layout
            case TensorType():
                return x.shape, x.dtype, x.layout, x.storage
            case TupleType():
                return (x.items,)
            case Span():
                return x.file, x.line, x.col, x.end_line, x.end_col
            case forms.Instr():
                return x.path, x.args, x.params
            case forms.InstrPath():
                return (x.path,)
            case enum.Enum() if type(x).__name__ in KINDS:
                return (x.name,)
            case _:
                _foreign(x)

    def _row(self, fields: tuple[Any, ...], of: object = None) -> int:
        self.rows.append(list(fields))
        if of is not None:
            self._known[id(of)] = len(self.rows) - 1
            self._kept.append(of)
        return len(self.rows) - 1


def _foreign(x: object) -> NoReturn:
    refuse("instruction-form", None, found=f"an object of type {type(x).__name__}")


__all__ = ["KINDS", "Rows", "to_data"]
