"""Programs printed and read back: how two of them are compared."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.node import Block, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.lang.load import load_source
from tilefoundry.lang.naming import name_values
from tilefoundry.lang.printer import print_module

HEAD = "from tilefoundry.dsl import *\nfrom tilefoundry.target import CudaTarget\n\n"
_files = itertools.count()


def parse(text: str, folder: Path, selector: str | None = None) -> Module:
    """The module that ``text`` holds."""
    path = folder / f"program{next(_files)}.py"
    path.write_text(text, encoding="utf-8")
    return load_source(str(path), selector, {}).module


def round_trip(module: Module, folder: Path) -> tuple[str, Module]:
    """Prints, parses and prints again: the text, and the module read back.

    Asserts that both prints are equal and both modules the same program.
    """
    text = print_module(module)
    again = parse(text, folder)
    assert print_module(again) == text
    same_module(module, again)
    return text, again


def same_module(a: Module, b: Module) -> None:
    """Equal in everything but spans and the names of values."""
    assert (a.target, a.topologies) == (b.target, b.topologies)
    assert dict(a.weight_names) == dict(b.weight_names)
    if a.entry in a.funcs:
        assert a.entry == b.entry
    assert list(a.funcs) == list(b.funcs)
    assert list(a.children) == list(b.children)
    for name, func in a.funcs.items():
        same_func(func, b.funcs[name])
    for x, y in zip(a.children.values(), b.children.values(), strict=True):
        same_module(x, y)


def same_func(a: Func, b: Func) -> None:
    """Equal parameters, statements, result and specialisations."""
    assert (a.name, a.weights, a.opens) == (b.name, b.weights, b.opens)
    assert [p.name for p in a.params] == [p.name for p in b.params]
    same = _Same(a)
    for x, y in zip(a.params, b.params, strict=True):
        same.node(x, y)
    same.block(a.body, b.body)
    if a.returns.values:
        same.types(a.result, b.result)
    assert [(v.dim, v.lo, v.hi) for v in a.variants] == [(v.dim, v.lo, v.hi) for v in b.variants]
    for x, y in zip(a.variants, b.variants, strict=True):
        same_func(x.func, y.func)


def exact(x: Any) -> Any:
    """Numbers by their text, so that NaN equals NaN and 0.0 differs from -0.0 and 0."""
    if isinstance(x, (int, float)):
        return repr(x)
    if isinstance(x, dict):
        return {k: exact(v) for k, v in x.items()}
    return tuple(map(exact, x)) if type(x) is tuple else x


class _Same:
    def __init__(self, func: Func) -> None:
        self.nodes: dict[Node, Node] = {}
        self.loops: dict[Any, Any] = {}
        self.names = name_values(func, ())

    def node(self, a: Node, b: Node) -> None:
        assert a.op.name == b.op.name
        assert [self.nodes[x] for x in a.args] == list(b.args)
        assert exact(self.value(dict(a.attrs))) == exact(dict(b.attrs))
        self.types(a.type, b.type)
        assert a.mesh == b.mesh
        self.nodes[a] = b

    def types(self, a: Any, b: Any) -> None:
        assert self.value(a) == b

    def value(self, x: Any) -> Any:
        """``x`` with the loop variables of the other program."""
        if isinstance(x, Expr):
            return ix.substitute(x, self.loops)
        if isinstance(x, TensorType):
            return replace(x, shape=self.value(x.shape), layout=self.value(x.layout))
        if isinstance(x, ShardLayout):
            return replace(x, shape=self.value(x.shape), stride=self.value(x.stride))
        if isinstance(x, TupleType):
            return TupleType(self.value(x.items))
        if isinstance(x, dict):
            return {k: self.value(v) for k, v in x.items()}
        if type(x) is tuple:
            return tuple(self.value(v) for v in x)
        return x

    def block(self, a: Block, b: Block) -> None:
        assert [type(s) for s in a.stmts] == [type(s) for s in b.stmts]
        for x, y in zip(a.stmts, b.stmts, strict=True):
            match x:
                case Node():
                    self.node(x, y)
                case Return():
                    assert [self.nodes[v] for v in x.values] == list(y.values)
                case Scope():
                    assert (x.own, x.mesh) == (y.own, y.mesh)
                    assert not x.binding or y.binding
                    self.block(x.body, y.body)
                case Loop():
                    self.loop(x, y)

    def loop(self, a: Loop, b: Loop) -> None:
        ends = (a.start, a.stop, a.step, a.window)
        assert self.value(ends) == (b.start, b.stop, b.step, b.window)
        assert (a.var.lo, a.var.hi, a.var.multiple) == (b.var.lo, b.var.hi, b.var.multiple)
        self.loops[a.var] = b.var.expr()
        theirs = {c.name: c for c in b.carried}
        assert len(a.carried) == len(b.carried)
        pairs = [(c, self._partner(c, theirs)) for c in a.carried]
        for x, y in pairs:
            assert self.nodes[x.init] is y.init
            self.nodes[x.head] = y.head
        self.block(a.body, b.body)
        for x, y in pairs:
            assert self.nodes[x.step] is y.step
            self.nodes[x.result] = y.result

    def _partner(self, carried: Any, theirs: dict[str, Any]) -> Any:
        name = self.names.values[carried.head]
        return theirs.get(name) or theirs[carried.name]


__all__ = ["HEAD", "parse", "round_trip", "same_func", "same_module"]
