"""A parsed module as a file that parses back to the same program.

One statement per node in the order of the program: what the author's file says by
constants, operators and compile-time loops is written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, LoopVar, OpenDim
from tilefoundry.ir.node import (
    CALL,
    CONST,
    ITEM,
    Block,
    Loop,
    Node,
    Return,
    Scope,
    nodes,
)
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.lang.naming import Names, name_values
from tilefoundry.lang.scopes import scope_text
from tilefoundry.lang.spelling import Bound, Place, tuple_text
from tilefoundry.ops.base import Op, operands
from tilefoundry.ops.signature import REQUIRED, Attr, Operand

INDENT = "    "


def print_module(module: Module) -> str:
    """``module`` and its children as a complete file."""
    return _File(module).text()


class _File:
    """The names of one file: words of the language, open extents, classes."""

    def __init__(self, module: Module) -> None:
        self.modules = _children_first(module)
        self.classes: dict[Module, str] = {}
        self.dims: dict[OpenDim, str] = {}
        self._words: dict[str, str] = {}
        self._authored = set[str]()
        for m in self.modules:
            self._authored |= _authored(m)
        for m in self.modules:
            self.classes[m] = _fresh(m.name, set(self.classes.values()))
        self._authored |= set(self.classes.values())

    def text(self) -> str:
        """The whole file."""
        bodies = [self._module(m) for m in self.modules]
        targets = sorted({type(m.target).__name__ for m in self.modules if m.target is not None})
        head = ["from tilefoundry.dsl import *"]
        if targets:
            head.append(f"from tilefoundry.target import {', '.join(targets)}")
        if any("min(" in line or "max(" in line for b in bodies for line in b if "def " in line):
            # Python's own min cannot compare open extents: leave annotations to the parser
            head.insert(0, "from __future__ import annotations\n")
        opens = [self._open(dim, name) for dim, name in self.dims.items()]
        consts = [f"{new} = {old}" for old, new in self._words.items() if old != new] + opens
        parts = ["\n".join(head)]
        if consts:
            parts.append("\n" + "\n".join(consts))
        parts += ["\n\n" + "\n".join(lines) for lines in bodies]
        return "\n".join(parts) + "\n"

    def word(self, name: str) -> str:
        """A name of the language, renamed where the author uses it for something else."""
        if name not in self._words:
            self._words[name] = _fresh(name, self._authored, "_")
        return self._words[name]

    def dim(self, dim: OpenDim) -> str:
        """The variable that holds an open extent."""
        if dim not in self.dims:
            taken = self._authored | set(self.dims.values()) | set(self._words.values())
            self.dims[dim] = _fresh(dim.name if dim.name.isidentifier() else "dim", taken)
        return self.dims[dim]

    def _open(self, dim: OpenDim, name: str) -> str:
        ends = [str(dim.lo)] if dim.lo or dim.hi != math.inf else []
        ends += [str(dim.hi)] if dim.hi != math.inf else []
        form = self.word("DimVar")
        return f"{name} = {form}({', '.join([repr(dim.name), *ends])})".replace("'", '"')

    def _module(self, module: Module) -> list[str]:
        options: list[str] = []
        start = next(iter(module.funcs)) if len(module.funcs) == 1 else module.entry
        if start in module.funcs:  # a plain method is not part of the program
            options.append(f'entry="{start}"')
        if module.target is not None:
            options.append(f"target={module.target!r}")
        if module.topologies:
            made = [f'{self.word("Topology")}("{t.level}", {t.size})' for t in module.topologies]
            options.append(f"topologies={tuple_text(made)}")
        body: list[str] = []
        if module.weight_names:
            pairs = ", ".join(f'"{k}": "{v}"' for k, v in module.weight_names.items())
            body.append(f"weight_names = {{{pairs}}}")
        body += [f"{name} = {child}" for name, child in self._attributes(module)]
        for func in module.funcs.values():
            body += ["", *self._func(module, func, f"@{self.word('func')}")]
            for v in func.variants:
                span = f'{self.word("RangePattern")}("{v.dim}", {v.lo}, {v.hi})'
                body += ["", *self._func(module, v.func, f"@{func.name}.specialize({span})")]
        if body and not body[0]:
            body = body[1:]
        head = [
            f"@{self.word('module')}({', '.join(options)})",
            f"class {self.classes[module]}:",
        ]
        return [*head, *_indent(body or ["pass"])]

    def _attributes(self, module: Module) -> list[tuple[str, str]]:
        """Child modules; instances ``name.0`` ... of one class are a list."""
        counts: dict[str, int] = {}
        for path in module.children:
            name = path.partition(".")[0]
            counts[name] = counts.get(name, 0) + 1
        out: list[tuple[str, str]] = []
        for path, child in module.children.items():
            name, dot, index = path.partition(".")
            if not dot:
                out.append((name, self.classes[child]))
            elif index == "0":
                many = f"{self.word('ModuleList')}({self.classes[child]}, {counts[name]})"
                out.append((name, many))
        return out

    def _func(self, module: Module, func: Func, decorator: str) -> list[str]:
        reserved = {*module.funcs, *self.classes.values(), *self._words.values()}
        reserved |= {self.dim(d) for d in _open_dims(func)}
        names = name_values(func, reserved)
        writer = _Writer(self, module, func, names)
        return [decorator, writer.signature(), *_indent(writer.body())]


class _Writer:
    """The statements of one function."""

    def __init__(self, file: _File, module: Module, func: Func, names: Names) -> None:
        self.module = module
        self.func = func
        self.names = names
        self.place = Place(file.word, file.dim)
        self.word = file.word

    def signature(self) -> str:
        """``def f(x: Tensor[...], w: ConstTensor[...]) -> Tensor[...]:``."""
        params: list[str] = []
        for p in self.func.params:
            form = "ConstTensor" if p.name in self.func.weights else "Tensor"
            params.append(f"{p.name}: {self.place.type(p.tensor, form)}")
        result = self._result(self.func.result)
        return f"def {self.func.name}({', '.join(params)}){result}:"

    def _result(self, result: Type) -> str:
        """The stated result; nothing where its extents are known only inside."""
        items = result.items if isinstance(result, TupleType) else (result,)
        bare = [TensorType(t.shape, t.dtype) for t in items]
        found = {s for t in bare for e in t.shape for s in ix.symbols(e)}
        if not all(isinstance(s, OpenDim) for s in found):
            return ""
        words = [self.place.type(t) for t in bare]
        if not isinstance(result, TupleType):
            return f" -> {words[0]}"
        return f" -> {self.word('tuple')}[{', '.join(words)}]"

    def body(self) -> list[str]:
        """All statements; ``...`` for a function that has only specialisations."""
        return self._block(self.func.body) or ["..."]

    def _block(self, block: Block) -> list[str]:
        lines: list[str] = []
        for n, stmt in enumerate(block.stmts):
            match stmt:
                case Node():
                    lines += self._node(stmt, block.stmts[n + 1 :][: _results(stmt)])
                case Scope():
                    lines += self._scope(stmt)
                case Loop():
                    lines += self._loop(stmt)
                case Return():
                    values = [self._name(v) for v in stmt.values]
                    lines.append(f"return {', '.join(values)}")
        return lines

    # Statements

    def _name(self, node: Node) -> str:
        """A value as an operand: its name, or the number that it is."""
        return (
            self.place.value(node.attrs["value"]) if node.op is CONST else self.names.values[node]
        )

    def _node(self, node: Node, after: Sequence[Any]) -> list[str]:
        if node.op is CONST or node.op is ITEM:
            return []
        if isinstance(node.type, TupleType):
            items = [self.names.values[x] for x in after]
            target = tuple_text(items) if len(items) == 1 else ", ".join(items)
        else:
            target = self.names.values[node]
        return [f"{target} = {self._call(node)}"]

    def _call(self, node: Node) -> str:
        if node.op is CALL:
            return self._sibling(node)
        assert isinstance(node.op, Op), node
        return f"{self.word('tf')}.{node.op.name}({', '.join(self._arguments(node, node.op))})"

    def _sibling(self, node: Node) -> str:
        """A call: tensors by position, weights that are passed by name."""
        callee = self.module.funcs[str(node.attrs["func"])]
        names: Any = node.attrs["names"]
        given: dict[str, Node] = dict(zip(names, node.args, strict=True))
        words = [self._name(a) for n, a in given.items() if n not in callee.weights]
        words += [f"{n}={self._name(a)}" for n, a in given.items() if n in callee.weights]
        return f"{callee.name}({', '.join(words)})"

    def _arguments(self, node: Node, op: Op) -> Iterable[str]:
        """Operands and required attributes by position, the rest by name."""
        given = operands(node)
        by_name = False
        for param in op.params:
            if isinstance(param, Operand) and param.many:
                words = [self._name(a) for a in given if a is not None]
                given = []
                yield from [tuple_text(words)] if op.name == "schedule" else words
                by_name = True
            elif isinstance(param, Operand):
                value = given.pop(0)
                by_name = by_name or value is None
                if value is not None:
                    yield f"{param.name}={self._name(value)}" if by_name else self._name(value)
            else:
                assert isinstance(param, Attr)
                value = node.attrs[param.name]
                if param.default is not REQUIRED:
                    by_name = True
                    if type(value) is type(param.default) and value == param.default:
                        continue
                text = self.place.value(value)
                yield f"{param.name}={text}" if by_name else text

    # Loops

    def _loop(self, loop: Loop) -> list[str]:
        place, name = self.place, self.names.loops[loop]
        if loop.window is not None:
            head = f"{self.word('tf')}.tile({place.dim(loop.stop)}, {place.dim(loop.step)})"
        else:
            head = f"{self.word('range')}({', '.join(self._range(loop))})"
        held = {n: self.names.values[n] for c in loop.carried for n in (c.init, c.head, c.step)}
        carried = sorted(loop.carried, key=lambda c: held[c.head])
        before = [(held[c.head], held[c.init]) for c in carried]
        after = [(held[c.head], held[c.step]) for c in carried]
        var = loop.var
        renamed = LoopVar(name, var.lo, var.hi, var.multiple)
        seen = len(place.bindings)
        place.loops[var] = renamed, name if loop.window is None else f"{name}.start"
        body = [*self._block(loop.body), *_aliases(after)]
        del place.loops[var]
        del place.bindings[seen:]  # a name bound in a loop ends with it
        return [*_aliases(before), f"for {name} in {head}:", *_indent(body or ["pass"])]

    def _range(self, loop: Loop) -> list[str]:
        ends: list[Dim] = [loop.stop]
        if loop.step != 1:
            ends = [loop.start, loop.stop, loop.step]
        elif loop.start != 0:
            ends = [loop.start, loop.stop]
        return [self.place.dim(e) for e in ends]

    # Mesh scopes

    def _scope(self, scope: Scope) -> list[str]:
        place, name = self.place, self.names.scopes[scope]
        mesh = scope_text(place, scope.own, scope.source)
        assert mesh is not None, f"{scope.source} names no mesh in sight"
        bound = Bound(scope.binding, name, scope.own)
        place.bindings.append(bound)
        body = self._block(scope.body)
        bound.open = False
        shown = scope.binding or name in place.used
        return [f"with {mesh}{f' as {name}' if shown else ''}:", *_indent(body or ["pass"])]


def _results(node: Node) -> int:
    return len(node.type.items) if isinstance(node.type, TupleType) else 0


def _aliases(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """``a = b`` where names differ; several at once, as one may be another's source."""
    moved = [(a, b) for a, b in pairs if a != b]
    if not moved:
        return []
    return [f"{', '.join(a for a, _ in moved)} = {', '.join(b for _, b in moved)}"]


def _indent(lines: Iterable[str]) -> list[str]:
    return [INDENT + line if line else "" for line in lines]


def _fresh(name: str, taken: set[str], tail: str = "_1") -> str:
    found = name
    while found in taken:
        found += tail
    return found


def _children_first(module: Module) -> list[Module]:
    out: list[Module] = []
    stack: list[tuple[Module, bool]] = [(module, False)]
    while stack:
        top, done = stack.pop()
        if done:
            out.append(top)
        elif top not in out:
            stack.append((top, True))
            stack += [(child, False) for child in reversed(list(top.children.values()))]
    return list(dict.fromkeys(out))


def _authored(module: Module) -> set[str]:
    """Every name that the author gave in a module."""
    found = {path.partition(".")[0] for path in module.children}
    for func in module.funcs.values():
        for one in (func, *(v.func for v in func.variants)):
            found |= {one.name} | {p.name for p in one.params}
            found |= {n.name for n in nodes(one.body)}
            stack: list[Any] = list(one.body.stmts)
            while stack:
                stmt = stack.pop()
                if isinstance(stmt, Loop):
                    found |= {stmt.var.name} | {c.name for c in stmt.carried}
                if isinstance(stmt, Scope):
                    found.add(stmt.binding)
                if isinstance(stmt, (Loop, Scope)):
                    stack += stmt.body.stmts
    return found - {""}


def _open_dims(func: Func) -> list[OpenDim]:
    """Open extents of a function's parameters, in order."""
    found = [s for p in func.params for e in p.tensor.shape for s in _ordered(e)]
    return list(dict.fromkeys(found))


def _ordered(extent: Dim) -> list[OpenDim]:
    found = [s for s in ix.symbols(extent) if isinstance(s, OpenDim)]
    return sorted(found, key=lambda s: s.key)
