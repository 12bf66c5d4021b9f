"""What the decorators record: functions and modules as declared, not yet parsed.

Nothing is parsed at import; names and children are known at once, so that a twin can
be held against its module where it is written.
"""

from __future__ import annotations

import difflib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.mesh import Topology
from tilefoundry.target import example

MOST_CHILDREN = 10_000
"""Instances that one ``ModuleList`` may hold."""


@dataclass(frozen=True)
class RangePattern:
    """A specialisation's range: ``lo <= dim <= hi``; refuses an empty one."""

    dim: str
    lo: int
    hi: int

    def __post_init__(self) -> None:
        whole = type(self.lo) is int and type(self.hi) is int
        if not isinstance(self.dim, str) or not whole or self.lo > self.hi:
            refuse("specialize-pattern", None, found=repr(self))


@dataclass(eq=False)
class FuncDecl:
    """A function as declared: Python function, kind (``func`` or ``prim_func``), variants."""

    fn: types.FunctionType
    kind: str = "func"
    target: Any = None
    variants: list[tuple[RangePattern, FuncDecl]] = field(default_factory=list)
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.fn.__name__

    @property
    def params(self) -> tuple[str, ...]:
        """Parameter names, in order."""
        code = self.fn.__code__
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @property
    def span(self) -> Span:
        code = self.fn.__code__
        return Span(code.co_filename, code.co_firstlineno)

    def specialize(self, pattern: RangePattern) -> Callable[[Any], FuncDecl]:
        """Decorator: the decorated body serves the range ``pattern``."""

        if not isinstance(pattern, RangePattern):
            refuse("specialize-pattern", self.span, found=repr(pattern))

        def register(fn: Any) -> FuncDecl:
            variant = fn if isinstance(fn, FuncDecl) else _declared(fn, self.kind)
            if variant.name == self.name:  # it would take the function's place in the class
                refuse("specialize-name", variant.span, name=self.name)
            self.variants.append((pattern, variant))
            return variant

        return register

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return lambda *args, **kwargs: instance.__tilefoundry_call__(self, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse("func-called", self.span, name=self.name)


@dataclass(frozen=True, eq=False)
class ModuleList:
    """``n`` instances of a child module."""

    module: type
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(eq=False)
class ModuleDecl:
    """A module as declared on class ``cls``."""

    cls: type
    entry: str
    target: Any
    topologies: tuple[Topology, ...]
    funcs: dict[str, FuncDecl]
    children: dict[str, type | ModuleList]
    span: Span

    def paths(self) -> Iterator[tuple[str, ModuleDecl]]:
        """This module (path ``""``) and all below it, by attribute path (``layers.3``)."""
        stack: list[tuple[str, ModuleDecl]] = [("", self)]
        while stack:
            path, decl = stack.pop(0)
            yield path, decl
            lead = f"{path}." if path else ""
            for name, child in decl.children.items():
                if isinstance(child, ModuleList):
                    inner = declaration(child.module)
                    stack += [(f"{lead}{name}.{i}", inner) for i in range(child.count)]
                else:
                    stack.append((lead + name, declaration(child)))


def declaration(cls: type) -> ModuleDecl:
    """The declaration that ``@module`` left on a class."""
    return cls.__dict__["__tilefoundry__"]


def is_module(obj: object) -> bool:
    """Whether ``obj`` is a class decorated with ``@module``."""
    return isinstance(obj, type) and isinstance(obj.__dict__.get("__tilefoundry__"), ModuleDecl)


def func(fn: Any) -> FuncDecl:
    """Decorator: an HIR function."""
    return _declared(fn, "func")


def prim_func(target: Any = None) -> Any:
    """Decorator: a TIR function, as ``schedule finalize`` prints it."""
    if isinstance(target, types.FunctionType):
        return _declared(target, "prim_func")
    return lambda fn: _declared(fn, "prim_func", target)


def _declared(fn: Any, kind: str, target: Any = None) -> FuncDecl:
    """The declaration of a plain ``def``; its text is what is parsed, so nothing else fits."""
    if not isinstance(fn, types.FunctionType):
        refuse("func-form", None, found=kind_of(fn))
    made = FuncDecl(fn, kind, target)
    flags = fn.__code__.co_flags
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR):
        refuse("func-form", made.span, found="an async function or a generator")
    if not fn.__name__.isidentifier():
        refuse("func-form", made.span, found="a lambda")
    return made


def kind_of(value: object) -> str:
    """What a value of Python is, for a refusal."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    if " at 0x" in text:  # an address says nothing, and differs from run to run
        return f"an object of type {type(value).__name__}"
    return f"{type(value).__name__} {text if len(text) < 50 else text[:47] + '...'}"


def module(
    entry: str = "", target: Any = None, topologies: tuple[Topology, ...] = ()
) -> Callable[[type], type]:
    """Decorator: a module of functions and child modules for one target."""
    if not isinstance(entry, str):
        _malformed(None, "entry of @module(...)", "a function's name", entry)
    named = isinstance(getattr(target, "id", None), str) and hasattr(target, "load")
    if target is not None and not named:
        _malformed(None, "target of @module(...)", f"a target such as {example()}", target)
    listed = isinstance(topologies, (tuple, list))
    if not listed or not all(isinstance(t, Topology) for t in topologies):
        wants = 'a tuple such as (Topology("cta", 8),)'
        _malformed(None, "topologies of @module(...)", wants, topologies)

    def decorate(cls: type) -> type:
        span = _class_span()
        if not isinstance(cls, type):
            _malformed(span, "what @module(...) decorates", "a class", cls)
        variants: set[int] = set()
        for value in vars(cls).values():
            if isinstance(getattr(value, "__func__", None), FuncDecl):
                found = f"@{type(value).__name__} over @func"
                refuse("func-form", value.__func__.span, found=found)
        found = {n: v for n, v in vars(cls).items() if isinstance(v, FuncDecl)}
        for decl in found.values():
            variants |= {id(v) for _, v in decl.variants}
        funcs = {n: v for n, v in found.items() if id(v) not in variants}
        first: dict[FuncDecl, str] = {}
        for name, decl in funcs.items():
            if first.setdefault(decl, name) != name:
                again = f"{first[decl]} under a second name, {name}"
                refuse("func-form", decl.span, found=again)
            decl.name = name
        children: dict[str, type | ModuleList] = {
            n: v for n, v in vars(cls).items() if isinstance(v, ModuleList) or is_module(v)
        }
        for name, child in children.items():
            _countable(name, child, span)
        _weight_names(cls, funcs.values(), children, span)
        start = entry or (next(iter(funcs)) if len(funcs) == 1 else "")
        if start and start not in funcs and not callable(getattr(cls, start, None)):
            known = " ".join(funcs) or "none"
            refuse("module-entry", span, module=cls.__name__, entry=start, known=known)
        decl = ModuleDecl(cls, start, target, tuple(topologies), funcs, children, span)
        setattr(cls, "__tilefoundry__", decl)  # noqa: B010
        return cls

    return decorate


def _weight_names(cls: type, funcs: Iterable[FuncDecl], children: Iterable[str],
                  span: Span) -> None:  # fmt: skip
    """``weight_names`` says what a checkpoint calls weights and children that there are."""
    stated = getattr(cls, "weight_names", {})
    what, fix = "weight_names", 'weight_names = {"gate": "mlp.gate_proj.weight"}'
    pairs = stated.items() if isinstance(stated, dict) else ((None, None),)
    if not all(isinstance(word, str) for pair in pairs for word in pair):
        _malformed(span, what, "a dictionary of names", stated, fix)
    known = dict.fromkeys([*(name for func in funcs for name in func.params), *children])
    for name in stated:
        if name not in known:
            wants = f"of names of parameters and children: {' '.join(known) or 'there are none'}"
            near = difflib.get_close_matches(name, known, 1)
            instead = f"{near[0]!r} for it" if near else "one of these, or nothing"
            _malformed(span, what, wants, name, instead)


def _countable(name: str, child: type | ModuleList, span: Span) -> None:
    """A list of children holds a module class, a whole number of times."""
    if not isinstance(child, ModuleList):
        return
    if not is_module(child.module):
        wants = "a list of an @module class"
        _malformed(span, name, wants, child.module, f"{name} = ModuleList(Layer, 2)")
    if type(child.count) is not int or not 0 <= child.count <= MOST_CHILDREN:
        wants = f"0 to {MOST_CHILDREN} modules"
        _malformed(span, name, wants, child.count, f"{name} = ModuleList(Layer, 2)")


def _malformed(span: Span | None, what: str, wants: str, found: object, fix: str = "") -> NoReturn:
    whole = f'@module(entry="f", target={example()}, topologies=(Topology("cta", 8),))'
    refuse("module-form", span, what=what, wants=wants, found=kind_of(found), fix=fix or whole)


def _class_span() -> Span:
    """Where ``@module`` decorates the class: the line that runs while it does."""
    frame = sys._getframe(2)
    return Span(frame.f_code.co_filename, frame.f_lineno)
