"""Runtime twins: an implementation of a module in any backend, bound by name.

``@runtime_module(Module)`` on a class and ``@runtime_func`` on its methods say what the
class implements. Names are held against the module where they are written: functions and
children must match one to one. A twin is called, never read.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from tilefoundry.diag import Span, refuse
from tilefoundry.lang.decl import FuncDecl, ModuleDecl, ModuleList, declaration, is_module
from tilefoundry.lang.forms import ConstTensor

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


@dataclass(frozen=True, eq=False)
class TwinDecl:
    """A twin as declared on class ``cls``: the module it implements, its children, and the
    weights that each function names in its own signature.

    ``in_place``: for each function, which input's memory holds which output, by its number.
    ``static``: functions whose results are buffers that the next call writes again.
    """

    cls: type
    module: type
    children: Mapping[str, type | ModuleList]
    named_weights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_place: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    static: frozenset[str] = frozenset()


@overload
def runtime_func(fn: F, /) -> F: ...
@overload
def runtime_func(
    *, in_place: Mapping[str, int] | None = None, static: bool = False
) -> Callable[[F], F]: ...
def runtime_func(
    fn: Any = None, /, *, in_place: Mapping[str, int] | None = None, static: bool = False
) -> Any:
    """Decorator: the method implements the module's function of the same name.

    It takes ``self`` and the function's tensors in order; weights (``ConstTensor``) may be
    named too and are then passed by keyword. It returns new tensors, unless it says
    otherwise: ``in_place={"cache": 0}``, output 0 is the memory of the input ``cache``, which
    it overwrites; ``static=True``, the outputs are buffers that the next call writes again
    (those of a captured CUDA graph, say).
    """
    if fn is None:
        return lambda fn: _marked(fn, dict(in_place or {}), static)
    return _marked(fn, {}, False)


def _marked(fn: F, in_place: Mapping[str, int], static: bool) -> F:
    fn.__tilefoundry_runtime__ = RuntimeMark(in_place, static)  # type: ignore[attr-defined]
    return fn


@dataclass(frozen=True)
class RuntimeMark:
    """What ``@runtime_func`` says of a method."""

    in_place: Mapping[str, int]
    static: bool


def runtime_module(module: type) -> Callable[[C], C]:
    """Decorator: the class is a twin of ``module``; refuses names that differ from its own.

    Children are attributes that hold the twin of the corresponding child module, or
    ``ModuleList(TwinClass, n)``. Names that start with an underscore are the twin's own.
    Plain methods of the module (``forward`` and kin) are taken over where the twin has none.

    ``Twin(weights)`` makes an instance and those of its children; ``weights`` is keyed by
    path from the module (``layers.0.q_proj``) and may be left out. Each instance has its
    own, by parameter name, as ``.weights`` before the ``__init__`` that the class defines
    (which takes no arguments) runs.
    """

    def decorate(cls: C) -> C:
        span = _class_span()
        if not is_module(module):
            found = getattr(module, "__name__", repr(module))
            refuse("twin-module", span, twin=cls.__name__, found=found)
        decl = declaration(module)
        public = dict(_public(cls))
        _hold_functions(cls, decl, public, span)
        children = _children(cls, decl, public, span)
        named = {
            name: _signature(cls, function, public[name], span)
            for name, function in decl.funcs.items()
        }
        _hold_methods(cls, decl, public, span)
        _adopt_methods(cls, decl, public)
        marks = {name: mark for name in decl.funcs if (mark := _mark(public[name]))}
        for name, mark in marks.items():
            _hold_in_place(cls, decl.funcs[name], mark, public[name])
        for name, weights in named.items():
            if weights:
                setattr(cls, name, _with_weights(public[name], weights))
        _construct(cls, children)
        setattr(cls, "__tilefoundry_implements__", module)  # noqa: B010
        in_place = {name: mark.in_place for name, mark in marks.items() if mark.in_place}
        static = frozenset(name for name, mark in marks.items() if mark.static)
        twin = TwinDecl(cls, module, children, named, in_place, static)
        setattr(cls, "__tilefoundry_twin__", twin)  # noqa: B010
        return cls

    return decorate


def is_twin(obj: object) -> bool:
    """Whether ``obj`` is a class decorated with ``@runtime_module``."""
    return isinstance(obj, type) and isinstance(obj.__dict__.get("__tilefoundry_twin__"), TwinDecl)


def twin_declaration(cls: type) -> TwinDecl:
    """The declaration that ``@runtime_module`` left on a class."""
    return cls.__dict__["__tilefoundry_twin__"]


def _below(weights: Mapping[str, Any], path: str) -> dict[str, Any]:
    lead = f"{path}."
    return {k.removeprefix(lead): v for k, v in weights.items() if k.startswith(lead)}


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    """Public attributes of a class and its bases, the class's own last."""
    for base in reversed(cls.__mro__[:-1]):
        yield from ((n, v) for n, v in vars(base).items() if not n.startswith("_"))


def _mark(value: object) -> RuntimeMark | None:
    found = getattr(value, "__tilefoundry_runtime__", None)
    return found if isinstance(found, RuntimeMark) else None


def _hold_functions(cls: type, decl: ModuleDecl, public: Mapping[str, Any], span: Span) -> None:
    ours = {name for name, value in public.items() if _mark(value)}
    if ours != set(decl.funcs):
        refuse(
            "twin-functions",
            span,
            twin=cls.__name__,
            module=decl.cls.__name__,
            twin_has=_words(ours),
            module_has=_words(decl.funcs),
            missing=_words(set(decl.funcs) - ours),
            surplus=_words(ours - set(decl.funcs)),
        )


def _words(names: Any) -> str:
    return " ".join(sorted(names)) or "none"


def _children(
    cls: type, decl: ModuleDecl, public: Mapping[str, Any], span: Span
) -> dict[str, type | ModuleList]:
    ours = {n: v for n, v in public.items() if is_twin(v) or isinstance(v, ModuleList)}
    theirs = {n: _spell(child) for n, child in decl.children.items()}
    seen = {n: _spell(_implemented(child)) for n, child in ours.items()}
    if seen != theirs:
        refuse(
            "twin-children",
            span,
            twin=cls.__name__,
            module=decl.cls.__name__,
            twin_has=_pairs(seen),
            module_has=_pairs(theirs),
        )
    for name, child in ours.items():
        if _module_of(_implemented(child)) is not _module_of(decl.children[name]):
            refuse(
                "twin-children",
                span,
                notes=(f"{name} implements another class of that name",),
                twin=cls.__name__,
                module=decl.cls.__name__,
                twin_has=_pairs(seen),
                module_has=_pairs(theirs),
            )
    return ours


def _implemented(child: type | ModuleList) -> Any:
    """A child of a twin as the child of the module that it stands for."""
    if isinstance(child, ModuleList):
        inner = child.module
        module = twin_declaration(inner).module if is_twin(inner) else inner
        return ModuleList(module, child.count)
    return twin_declaration(child).module


def _module_of(child: type | ModuleList) -> type:
    return child.module if isinstance(child, ModuleList) else child


def _spell(child: type | ModuleList) -> str:
    if isinstance(child, ModuleList):
        return f"ModuleList({child.module.__name__}, {child.count})"
    return child.__name__


def _pairs(children: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {child}" for name, child in sorted(children.items())) or "none"


def _signature(cls: type, decl: FuncDecl, method: Any, span: Span) -> tuple[str, ...]:
    """The weights that ``method`` names; refuses parameters that differ from ``decl``'s."""
    weights = [name for name in decl.params if _is_weight(decl, name)]
    tensors = [name for name in decl.params if name not in weights]
    if not isinstance(method, types.FunctionType):
        found: list[str] = [f"a {type(method).__name__}"]
    else:
        found = [
            ("*" * (p.kind is p.VAR_POSITIONAL) or "**" * (p.kind is p.VAR_KEYWORD)) + p.name
            for p in inspect.signature(method).parameters.values()
        ]
    named = tuple(name for name in found if name in weights)
    own = [name for name in found[1:] if name not in weights]
    if own != tensors or not found or found[0] != "self":
        takes = ", ".join(["self", *tensors])
        refuse(
            "twin-signature",
            _method_span(method) if isinstance(method, types.FunctionType) else span,
            twin=cls.__name__,
            function=decl.name,
            takes=f"({takes})" + (f", and any of {', '.join(weights)}" if weights else ""),
            found=f"({', '.join(found)})",
        )
    return named


def _hold_in_place(cls: type, decl: FuncDecl, mark: RuntimeMark, method: Any) -> None:
    """Refuse an ``in_place`` that names no input, or gives an output two memories."""
    inputs = [name for name in decl.params if not _is_weight(decl, name)]
    numbers = list(mark.in_place.values())
    known = all(name in inputs for name in mark.in_place)
    if not known or len(set(numbers)) != len(numbers) or not all(
        type(n) is int and n >= 0 for n in numbers
    ):  # fmt: skip
        refuse(
            "twin-in-place",
            _method_span(method),
            twin=cls.__name__,
            function=decl.name,
            found=repr(dict(mark.in_place)),
            inputs=" ".join(inputs) or "none",
        )


def _is_weight(decl: FuncDecl, name: str) -> bool:
    annotation = decl.fn.__annotations__.get(name)
    if isinstance(annotation, str):
        return annotation.split("[")[0].rpartition(".")[2].strip() == "ConstTensor"
    return isinstance(annotation, ConstTensor)


def _hold_methods(cls: type, decl: ModuleDecl, public: Mapping[str, Any], span: Span) -> None:
    """Refuse public callables that the module lacks: a twin adds nothing to be called."""
    surplus = [
        name
        for name, value in public.items()
        if name not in decl.funcs
        and name not in decl.children
        and (callable(value) or isinstance(value, staticmethod | classmethod | property))
        and not callable(getattr(decl.cls, name, None))
    ]
    if surplus:
        refuse(
            "twin-method",
            span,
            twin=cls.__name__,
            module=decl.cls.__name__,
            surplus=_words(surplus),
            private=" ".join(f"_{name}" for name in sorted(surplus)),
        )


def _adopt_methods(cls: type, decl: ModuleDecl, public: Mapping[str, Any]) -> None:
    for name, value in vars(decl.cls).items():
        mine = isinstance(value, types.FunctionType) and not name.startswith("_")
        if mine and name not in public:
            setattr(cls, name, value)


def _construct(cls: type, children: Mapping[str, type | ModuleList]) -> None:
    """Give ``cls`` the ``__init__`` that takes weights and makes the children."""
    own = cls.__init__

    def init(self: Any, weights: Mapping[str, Any] | None = None) -> None:
        if weights is None and "weights" in vars(self):
            own(self)  # of a class that this one is a base of, which has set them
            return
        given = weights or {}
        self.weights = {name: value for name, value in given.items() if "." not in name}
        for name, child in children.items():
            if isinstance(child, ModuleList):
                paths = [f"{name}.{n}" for n in range(child.count)]
                setattr(self, name, [child.module(_below(given, path)) for path in paths])
            else:
                setattr(self, name, child(_below(given, name)))
        own(self)

    setattr(cls, "__init__", init)  # noqa: B010


def _with_weights(method: types.FunctionType, names: tuple[str, ...]) -> Callable[..., Any]:
    """``method`` with the weights it names filled in from ``self.weights``."""
    from functools import wraps

    @wraps(method)
    def call(self: Any, *args: Any, **given: Any) -> Any:
        for name in names:
            if name not in given:
                if name not in self.weights:
                    refuse("twin-weight", _method_span(method), name=name)
                given[name] = self.weights[name]
        return method(self, *args, **given)

    return call


def _class_span() -> Span:
    """Where ``@runtime_module`` decorates the class: the line that runs while it does."""
    frame = sys._getframe(2)
    return Span(frame.f_code.co_filename, frame.f_lineno)


def _method_span(method: types.FunctionType) -> Span:
    return Span(method.__code__.co_filename, method.__code__.co_firstlineno)
