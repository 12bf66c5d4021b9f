"""Declarations to IR: functions on demand, modules with their children."""

from __future__ import annotations

import ast
from contextlib import suppress
from types import GenericAlias
from typing import Any

from tilefoundry.check.vary import vary
from tilefoundry.check.windows import hold_windows
from tilefoundry.diag import Diag, Refusal, Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import PARAM, Node, Return
from tilefoundry.ir.program import Func, Module, Variant
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.lang.build import Builder, freeze
from tilefoundry.lang.constants import with_constants
from tilefoundry.lang.decl import FuncDecl, ModuleDecl, ModuleList, RangePattern, declaration
from tilefoundry.lang.express import evaluate, written_type
from tilefoundry.lang.forms import ConstTensor, Tensor
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import outside
from tilefoundry.lang.source import SourceFile, source_file, span_of
from tilefoundry.lang.statements import run
from tilefoundry.lang.typing import tensor_type
from tilefoundry.ops.base import Context
from tilefoundry.targets.instructions import meaning

DEFAULT_LEVELS = ("gpu", "cluster", "cta", "thread")


class ModuleParser:
    """Parses the functions of one declared module, each once, callees first."""

    def __init__(self, decl: ModuleDecl) -> None:
        self.decl = decl
        self.target = decl.target.load(decl.span) if decl.target is not None else None
        self.levels = self.target.levels if self.target else DEFAULT_LEVELS
        self.context = self._context()
        self.funcs: dict[int, Func] = {}
        self._open: list[str] = []
        self._refused: dict[int, Refusal] = {}
        self._check_topologies()

    def _context(self) -> Context:
        if self.target is None:
            return Context(instruction=meaning)
        order = self.levels
        owners = {name: s.level for name, s in self.target.storages.items()}

        def shared(storage: str, level: str) -> bool:
            owner = owners.get(storage)
            return owner is None or order.index(level) > order.index(owner)

        target = self.target

        def contract(
            instr: Any, mesh: Mesh, operands: Any, span: Span | None, nodes: Any = ()
        ) -> Any:
            from tilefoundry.targets.contract.use import legal_use

            return legal_use(target, instr, mesh, operands, span, nodes)

        return Context(tuple(owners), shared, meaning, contract)

    def _check_topologies(self) -> None:
        seen: set[str] = set()
        for topology in self.decl.topologies:
            level = topology.level
            if level not in self.levels:
                known = " ".join(self.levels)
                refuse("mesh-level-unknown", self.decl.span, level=level, known=known)
            if level in seen:
                refuse("topology-twice", self.decl.span, level=level)
            if type(topology.size) is not int or topology.size < 1:
                refuse("topology-size", self.decl.span, level=level, size=topology.size)
            most = self.target.max_units(level) if self.target else None
            most = getattr(most, "value", most)
            if most is not None and topology.size > most:
                refuse(
                    "topology-too-large", self.decl.span, level=level, size=topology.size, most=most
                )
            seen.add(level)

    def func(self, decl: FuncDecl, span: Span | None = None) -> Func:
        """The parsed function; refuses a function that calls itself."""
        if id(decl) in self.funcs:
            return self.funcs[id(decl)]
        if id(decl) in self._refused:
            raise self._refused[id(decl)]
        if decl.name in self._open:
            cycle = " -> ".join([*self._open[self._open.index(decl.name) :], decl.name])
            refuse("call-cycle", span or decl.span, cycle=cycle)
        self._open.append(decl.name)
        try:
            made = self._parse(decl)
        except Refusal as refusal:
            self._refused[id(decl)] = refusal
            raise
        except RecursionError:
            outside(decl.span, "nesting this deep")
        self._open.pop()
        self.funcs[id(decl)] = made
        return made

    def _parse(self, decl: FuncDecl) -> Func:
        if decl.kind != "func":
            refuse("prim-func-unsupported", decl.span, name=decl.name)
        file = source_file(decl.span.file)
        node = file.function(decl.fn.__name__, decl.span.line)
        if node is None:
            refuse("source-changed", decl.span, name=decl.name)
        frame = self._frame(decl, file)
        try:
            params, weights = self._params(frame, node, decl)
            returns = run(frame, node.body)
            stated = self._stated(frame, node, decl)
        except Refusal as refusal:
            raise with_constants(refusal, {**frame.outside, **frame.names}) from None
        span = span_of(file.path, node)
        if decl.variants and returns is None:
            if stated is None:
                refuse("specialize-result", span, name=decl.name)
            returns, result = Return((), span), stated
        elif returns is None:
            refuse("return-missing", span, name=decl.name)
        else:
            types = tuple(v.tensor for v in returns.values)
            result = types[0] if len(types) == 1 else TupleType(types)
            self._agrees(span_of(file.path, node.returns or node), stated, result)
        self._one_range(params)
        opens = sorted(
            {s for p in params for e in p.tensor.shape for s in ix.symbols(e)},
            key=lambda s: s.name,
        )
        dims = tuple(s for s in opens if isinstance(s, ix.OpenDim))
        body = freeze(frame.builder.stmts, frame.builder.used)
        variants = self._variants(decl, dims, params, result)
        func = Func(decl.name, params, weights, body, returns, result, span, dims, variants)
        vary(func, self.context)
        hold_windows(func.body)
        return func

    def _one_range(self, params: tuple[Node, ...]) -> None:
        """An open extent's name stands for one range in the whole function."""
        known: dict[str, ix.OpenDim] = {}
        for param in params:
            for extent in param.tensor.shape:
                for dim in ix.symbols(extent):
                    if not isinstance(dim, ix.OpenDim) or known.setdefault(dim.name, dim) == dim:
                        continue
                    first = known[dim.name]
                    a, b = f"{first.lo} to {first.hi}", f"{dim.lo} to {dim.hi}"
                    refuse("dim-ranges", param.span, name=dim.name, a=a, b=b)

    def _frame(self, decl: FuncDecl, file: SourceFile) -> Frame:
        fn = decl.fn
        outside = dict(fn.__globals__)  # pyright: ignore[reportAttributeAccessIssue]
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that the enclosing function has not bound yet
                outside[name] = cell.cell_contents
        siblings: dict[str, Any] = dict(self.decl.funcs)
        return Frame(
            file.path,
            Builder(self.context, Mesh()),
            outside,
            siblings,
            self.decl.topologies,
            self.levels,
            self.func,
        )

    def _params(
        self, frame: Frame, node: ast.FunctionDef, decl: FuncDecl
    ) -> tuple[tuple[Node, ...], frozenset[str]]:
        args = node.args
        if args.vararg or args.kwarg or args.defaults or any(args.kw_defaults):
            refuse("param-form", frame.span(node), name=node.name)
        params: list[Node] = []
        weights: set[str] = set()
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            span = frame.span(arg)
            if arg.annotation is None:
                refuse("param-type", span, name=arg.arg)
            form = self._annotation(frame, arg.annotation, decl, arg.arg)
            type = form if isinstance(form, TensorType) else None
            if isinstance(form, Tensor):
                type = tensor_type(form, span, self.context.storages)
            if type is None:
                refuse("param-type", span, name=arg.arg)
            if self._is_weight(frame, arg.annotation, form):
                weights.add(arg.arg)
            made = Node(PARAM, (), {}, type, span, Mesh(), arg.arg)
            params.append(made)
            frame.names[arg.arg] = made
        return tuple(params), frozenset(weights)

    def _annotation(self, frame: Frame, node: ast.expr, decl: FuncDecl, name: str) -> Any:
        """A written type: as Python evaluated it, where it did, else from its text."""
        evaluated = decl.fn.__annotations__.get(name)
        return evaluated if isinstance(evaluated, Tensor) else written_type(frame, node)

    def _is_weight(self, frame: Frame, node: ast.expr, form: Any) -> bool:
        if isinstance(form, ConstTensor):
            return True
        if isinstance(node, ast.Subscript) and isinstance(form, TensorType):
            return evaluate(frame, node.value) is ConstTensor
        return False

    def _stated(self, frame: Frame, node: ast.FunctionDef, decl: FuncDecl) -> Type | None:
        if node.returns is None:
            return None
        form = self._annotation(frame, node.returns, decl, "return")
        several = form.__args__ if isinstance(form, GenericAlias) else (form,)
        items = form if isinstance(form, tuple) else several
        types: list[TensorType] = []
        for item in items:
            if isinstance(item, Tensor):
                item = tensor_type(item, frame.span(node.returns), self.context.storages)
            if not isinstance(item, TensorType):
                refuse("param-type", frame.span(node.returns), name="return")
            types.append(item)
        return types[0] if len(types) == 1 else TupleType(tuple(types))

    def _agrees(self, span: Span, stated: Type | None, found: Type) -> None:
        """The written result is the derived one; a distribution need not be written."""
        if stated is None:
            return
        mine = stated.items if isinstance(stated, TupleType) else (stated,)
        theirs = found.items if isinstance(found, TupleType) else (found,)
        same = len(mine) == len(theirs) and all(
            (a.shape, a.dtype, a.storage) == (b.shape, b.dtype, b.storage)
            and a.layout in (None, b.layout)
            for a, b in zip(mine, theirs, strict=True)
        )
        if not same:
            refuse("return-type", span, stated=stated, derived=found)

    def _variants(
        self, decl: FuncDecl, dims: tuple[ix.OpenDim, ...], params: tuple[Node, ...], result: Type
    ) -> tuple[Variant, ...]:
        if not decl.variants:
            return ()
        made: list[Variant] = []
        for pattern, variant in sorted(decl.variants, key=lambda v: v[0].lo):
            func = self.func(variant)
            self._same_signature(decl, params, result, func)
            made.append(Variant(pattern.dim, pattern.lo, pattern.hi, func))
        self._covers(decl, dims, [p for p, _ in decl.variants])
        return tuple(made)

    def _same_signature(
        self, decl: FuncDecl, params: tuple[Node, ...], result: Type, func: Func
    ) -> None:
        mine = [(p.name, p.tensor.shape, p.tensor.dtype) for p in params]
        theirs = [(p.name, p.tensor.shape, p.tensor.dtype) for p in func.params]
        if mine != theirs:
            refuse("specialize-signature", func.span, name=decl.name, variant=func.name)
        self._agrees(func.span, result, func.result)

    def _covers(
        self, decl: FuncDecl, dims: tuple[ix.OpenDim, ...], patterns: list[RangePattern]
    ) -> None:
        names = {p.dim for p in patterns}
        dim = next((d for d in dims if d.name in names), None)
        if dim is None or len(names) != 1:
            known = " ".join(d.name for d in dims) or "none"
            refuse("specialize-dim", decl.span, name=decl.name, dim=" ".join(names), known=known)
        at = dim.lo
        for pattern in sorted(patterns, key=lambda p: p.lo):
            if pattern.lo != at:
                problem = "overlap" if pattern.lo < at else "leave a gap"
                refuse(
                    "specialize-cover",
                    decl.span,
                    name=decl.name,
                    dim=dim.name,
                    problem=problem,
                    at=min(at, pattern.lo),
                )
            at = pattern.hi + 1
        if at - 1 < dim.hi:
            refuse(
                "specialize-cover",
                decl.span,
                name=decl.name,
                dim=dim.name,
                problem="leave a gap",
                at=at,
            )


_parsed: dict[type, Module] = {}


def parse_module(cls: type) -> Module:
    """The module declared on ``cls``, with its children, every function typed.

    Independent refusals of different functions are collected into one.
    """
    if cls in _parsed:
        return _parsed[cls]
    decl = declaration(cls)
    parser = ModuleParser(decl)
    diags: list[Diag] = []
    for func in _callees_first(decl):
        parser._open.clear()
        try:
            parser.func(func)
        except Refusal as refusal:
            diags += [d for d in refusal.diags if d not in diags]
    if diags:
        raise Refusal(*sorted(diags, key=_place))
    funcs = {name: parser.func(func) for name, func in decl.funcs.items()}
    children: dict[str, Module] = {}
    for name, child in decl.children.items():
        if isinstance(child, ModuleList):
            inner = parse_module(child.module)
            children |= {f"{name}.{i}": inner for i in range(child.count)}
        else:
            children[name] = parse_module(child)
    made = Module(
        cls.__name__,
        decl.entry,
        decl.target,
        decl.topologies,
        funcs,
        children,
        decl.span,
        dict(getattr(cls, "weight_names", {})),
    )
    _parsed[cls] = made
    return made


def _place(diag: Diag) -> tuple[str, int]:
    return (diag.span.file, diag.span.line) if diag.span else ("", 0)


def _callees_first(decl: ModuleDecl) -> list[FuncDecl]:
    """The functions so that a call mostly finds its callee typed, however long the chain."""
    order: dict[FuncDecl, None] = {}
    seen: set[FuncDecl] = set()
    stack = [(func, False) for func in reversed(decl.funcs.values())]
    while stack:
        func, done = stack.pop()
        if done:
            order[func] = None
        elif func not in seen:
            seen.add(func)
            bodies = [func, *(variant for _, variant in func.variants)]
            names = dict.fromkeys(n for body in bodies for n in body.fn.__code__.co_names)
            stack.append((func, True))
            stack += [(decl.funcs[n], False) for n in names if n in decl.funcs]
    return list(order)


def module_context(module: Module) -> Context:
    """What the module's target offers to operations' rules."""
    decl = ModuleDecl(object, "", module.target, (), {}, {}, module.span or Span("", 1))
    return ModuleParser(decl).context
