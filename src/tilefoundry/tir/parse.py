"""A printed program read back, from its syntax tree: nothing of it is executed."""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilefoundry import dsl
from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.build import Builder
from tilefoundry.lang.express import evaluate
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import spell
from tilefoundry.lang.source import SourceFile, span_of
from tilefoundry.ops.base import Context
from tilefoundry.target import AnyTarget, TargetRef, example, records
from tilefoundry.targets import Target
from tilefoundry.tir.comments import Comments
from tilefoundry.tir.declarations import Declarations, stated_topologies
from tilefoundry.tir.operands import malformed, stated
from tilefoundry.tir.printer import alone
from tilefoundry.tir.program import Buffer, Launch, PrimFunc, Program
from tilefoundry.tir.statements import Body

BUILTINS = ("range", "min", "max", "float")


@cache
def outside() -> Mapping[str, Any]:
    """Every name that a printed program may use without declaring it."""
    return {
        **{name: getattr(dsl, name) for name in dsl.__all__},
        **{name: getattr(builtins, name) for name in BUILTINS},
        **{record.__name__: record for record in (*records(), AnyTarget)},
        "Layout": stated,
    }


class _Frame(Frame):
    def look_up(self, name: str, span: Span) -> Any:
        """A name of the language or of the kernel, and no other of Python's."""
        for place in (self.names, self.outside):
            if name in place:
                return place[name]
        close = difflib.get_close_matches(name, [*self.names, *self.outside], 1)
        near = f"did you mean {close[0]}?" if close else "declare it above its first use"
        refuse("tir-name", span, name=name, near=near)


def parse_program(text: str, path: str) -> Program:
    """The program that ``text`` prints; ``path`` is the file that refusals name.

    Refuses what ``finalize`` would not print (``tir-form``), an unknown name
    (``tir-name``), and what the language refuses of meshes, layouts and types.
    """
    file = SourceFile(path, text)
    for stmt in file.tree.body:
        match stmt:
            case ast.ImportFrom() | ast.Expr(ast.Constant()):
                pass
            case ast.ClassDef():
                return _Module(file, stmt).program()
            case _:
                found = ast.unparse(stmt).splitlines()[0]
                fix = "write one class under @module, behind the imports"
                malformed(span_of(path, stmt), "imports and a class", found, fix)
    malformed(Span(path, 1), "a class under @module", "none", "write one")


@dataclass(frozen=True)
class _Steps:
    """The entry as written: its parameters, weights, launches and results."""

    inputs: tuple[str, ...]
    weights: frozenset[str]
    launches: tuple[Launch, ...]
    results: tuple[str, ...]


class _Module:
    """The class of a printed program."""

    def __init__(self, file: SourceFile, node: ast.ClassDef) -> None:
        self.file = file
        self.node = node
        self.comments = Comments(file.text)
        self.frame = _Frame(
            file.path, Builder(Context(), Mesh()), outside(), {}, (), (), _no_siblings
        )
        given = self._options(node, "module", ("entry", "target", "topologies"))
        self.entry = given["entry"]
        if not isinstance(self.entry, str):
            fix = 'write entry="name"'
            malformed(self._span(node), "a function's name", spell(self.entry), fix)
        self.target = self._target(node, given["target"])
        self.topologies = stated_topologies(self._span(node), given["topologies"])
        self.weights: set[str] = set()

    def program(self) -> Program:
        """The whole program."""
        kernels: dict[str, PrimFunc] = {}
        steps: _Steps | None = None
        defs = [s for s in self.node.body if isinstance(s, ast.FunctionDef)]
        for func in defs:
            if func.decorator_list:
                kernels[func.name] = self._kernel(func)
        for func in defs:
            if not func.decorator_list:
                steps = self._steps(func, kernels)
        notes, registers = self.comments.above(self.node.decorator_list[0].lineno)
        if len(kernels) == 1 and (notes or registers):
            ((name, only),) = kernels.items()
            kernels[name] = replace(only, notes=notes, registers=registers)
        if steps is not None:
            return Program(kernels, self.entry, steps.inputs, steps.launches, steps.results,
                           steps.weights, self.node.name)  # fmt: skip
        if len(kernels) != 1:
            fix = "write a method that calls the kernels in order"
            found = f"{len(kernels)} kernels and no method that calls them"
            malformed(self._span(self.node), "one kernel, or the steps", found, fix)
        (only,) = kernels.values()
        return alone(only, self.node.name, frozenset(self.weights))

    def _span(self, node: ast.AST) -> Span:
        return span_of(self.file.path, node)

    def _options(
        self, node: ast.ClassDef | ast.FunctionDef, name: str, needed: tuple[str, ...]
    ) -> dict[str, Any]:
        """The arguments of the only decorator, which is ``@name(...)``."""
        made = node.decorator_list[0] if len(node.decorator_list) == 1 else None
        called = isinstance(made, ast.Call) and ast.unparse(made.func) == name
        words = {str(k.arg): k.value for k in made.keywords} if isinstance(made, ast.Call) else {}
        if not called or set(words) != set(needed):
            expected = f"@{name}({', '.join(f'{n}=' for n in needed)})"
            found = f"@{ast.unparse(made)}" if made is not None else "no decorator, or several"
            malformed(self._span(node), expected, found, f"write {expected}")
        return {k: evaluate(self.frame, v) for k, v in words.items()}

    def _target(self, node: ast.AST, ref: Any) -> Target:
        if not isinstance(ref, TargetRef) or not isinstance(ref.id, str):
            fix = f"write a target such as {example()}"
            malformed(self._span(node), "a target", spell(ref), fix)
        return ref.load(self._span(node))

    # Kernels

    def _kernel(self, node: ast.FunctionDef) -> PrimFunc:
        given = self._options(node, "prim_func", ("target",))
        target = self._target(node, given["target"])
        frame = _Frame(
            self.file.path,
            Builder(Context(tuple(target.storages)), Mesh()),
            outside(),
            {},
            self.topologies,
            target.levels,
            _no_siblings,
        )
        args = node.args
        if args.vararg or args.kwarg or args.defaults or any(args.kw_defaults):
            fix = "write inputs, then *, then outputs"
            malformed(self._span(node), "inputs, *, outputs", ast.unparse(args), fix)
        params = [self._param(frame, a, "in") for a in args.args]
        params += [self._param(frame, a, "out") for a in args.kwonlyargs]
        made = Declarations(frame, self.comments, params)
        stmts = Body(made).block(node.body)
        last = [a.annotation for a in (*args.args, *args.kwonlyargs) if a.annotation is not None]
        _, span = self.comments.behind_head(last[-1], node.body[0]) if last else ("", None)
        notes, registers = self.comments.above(node.decorator_list[0].lineno)
        return PrimFunc(
            node.name,
            tuple(made.params.values()),
            tuple(made.buffers.values()),
            tuple(made.barriers),
            stmts,
            target,
            self.topologies if made.topologies is None else made.topologies,
            made.shared_bytes,
            tuple(made.counters.values()),
            notes,
            registers,
            span,
        )

    def _param(self, frame: Frame, node: ast.arg, role: str) -> Buffer:
        type = evaluate(frame, node.annotation) if node.annotation is not None else None
        fixed = isinstance(type, TensorType) and all(isinstance(e, int) for e in type.shape)
        if not isinstance(type, TensorType) or not fixed:
            fix = f'write {node.arg}: Tensor[(64, 64), "f32"]'
            malformed(self._span(node), "Tensor[shape, dtype]", spell(type), fix)
        assert isinstance(node.annotation, ast.Subscript)
        if ast.unparse(node.annotation.value) == "ConstTensor":
            self.weights.add(node.arg)
        shape: Any = type.shape
        return Buffer(node.arg, shape, type.dtype, type.storage, type.layout, role)

    # The entry's steps

    def _steps(self, node: ast.FunctionDef, kernels: Mapping[str, PrimFunc]) -> _Steps:
        """``h = up(x, w)`` ... ``return h``: kernels in order on values by name."""
        weights = {a.arg for a in node.args.args if a.annotation is not None}
        launches: list[Launch] = []
        results: tuple[str, ...] = ()
        for stmt in node.body:
            match stmt:
                case ast.Assign([target], ast.Call(ast.Name(name), args, [])):
                    launches.append(self._launch(stmt, kernels, name, args, _names(target)))
                case ast.Expr(ast.Call(ast.Name(name), args, [])):
                    launches.append(self._launch(stmt, kernels, name, args, ()))
                case ast.Return(value):
                    results = _names(value) if value is not None else ()
                case _:
                    fix = "write values = kernel(values), and return values"
                    malformed(self._span(stmt), "a call of a kernel", ast.unparse(stmt), fix)
        inputs = tuple(a.arg for a in node.args.args)
        return _Steps(inputs, frozenset(weights), tuple(launches), results)

    def _launch(
        self,
        stmt: ast.stmt,
        kernels: Mapping[str, PrimFunc],
        name: str,
        args: list[ast.expr],
        outputs: tuple[str, ...],
    ) -> Launch:
        if name not in kernels:
            near = f"the kernels are {' '.join(kernels)}"
            refuse("tir-name", self._span(stmt), name=name, near=near)
        inputs = tuple(n for a in args for n in _names(a))
        roles = [p.role for p in kernels[name].params]
        wanted = roles.count("in"), roles.count("out")
        if (len(inputs), len(outputs)) != wanted:
            expected = f"{wanted[0]} inputs and {wanted[1]} outputs"
            found = f"{len(inputs)} and {len(outputs)}"
            malformed(self._span(stmt), expected, found, f"call {name} as it is declared")
        return Launch(name, inputs, outputs)


def _names(node: ast.expr) -> tuple[str, ...]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(n.id for n in items if isinstance(n, ast.Name))


def _no_siblings(decl: Any, span: Span) -> Any:
    raise AssertionError(f"a kernel calls no function: {decl}")


__all__ = ["parse_program"]
