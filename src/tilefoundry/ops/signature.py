"""Parameters of operations: operands and attributes, bound as Python binds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DType, dtype_of
from tilefoundry.ir.expr import Dim, Expr
from tilefoundry.ir.types import TensorType

REQUIRED: object = object()


@dataclass(frozen=True)
class Operand:
    """A tensor parameter. ``number``: a Python number may stand for it; ``many``: it
    takes all further positional arguments (or one sequence of tensors)."""

    name: str
    optional: bool = False
    number: bool = False
    many: bool = False


@dataclass(frozen=True)
class Attr:
    """A compile-time parameter; ``convert(value, op, name, span)`` checks and normalises."""

    name: str
    convert: Callable[[object, str, str, Span | None], object]
    default: object = REQUIRED


Param: TypeAlias = Operand | Attr


@dataclass(frozen=True)
class Bound:
    """Arguments sorted into operands (None: an optional one left out) and attributes."""

    operands: tuple[object, ...]
    attrs: Mapping[str, object]


def bind(
    op: str,
    params: Sequence[Param],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    span: Span | None,
) -> Bound:
    """Bind call arguments to ``params``; refuses surplus, missing and unknown ones."""
    values: dict[str, object] = {}
    rest = list(args)
    for param in params:
        if isinstance(param, Operand) and param.many:
            if len(rest) == 1 and isinstance(rest[0], (tuple, list)):
                rest = list(rest[0])  # pyright: ignore[reportUnknownArgumentType]
            values[param.name] = tuple(rest)
            rest = []
        elif rest:
            values[param.name] = rest.pop(0)
    if rest:
        refuse("op-arguments", span, op=op, takes=takes(params), problem=f"{len(rest)} too many")
    known = {p.name for p in params}
    for name, value in kwargs.items():
        if name not in known:
            problem = f"no parameter is called {name}"
            refuse("op-arguments", span, op=op, takes=takes(params), problem=problem)
        if name in values and values[name] != ():
            problem = f"{name} is given twice"
            refuse("op-arguments", span, op=op, takes=takes(params), problem=problem)
        many = any(isinstance(p, Operand) and p.many and p.name == name for p in params)
        if many and not isinstance(value, (tuple, list)):
            problem = f"{name} is not a tuple of tensors"
            refuse("op-arguments", span, op=op, takes=takes(params), problem=problem)
        values[name] = value
    operands: list[object] = []
    attrs: dict[str, object] = {}
    for param in params:
        given = param.name in values
        if isinstance(param, Operand):
            if param.many:
                operands += values.get(param.name, ())  # type: ignore[arg-type]
            elif given and values[param.name] is not None:
                operands.append(values[param.name])
            elif param.optional:
                operands.append(None)
            else:
                _missing(op, params, param.name, span)
        elif given:
            attrs[param.name] = param.convert(values[param.name], op, param.name, span)
        elif param.default is REQUIRED:
            _missing(op, params, param.name, span)
        else:
            attrs[param.name] = param.default
    return Bound(tuple(operands), attrs)


def _missing(op: str, params: Sequence[Param], name: str, span: Span | None) -> None:
    refuse("op-arguments", span, op=op, takes=takes(params), problem=f"{name} is missing")


def takes(params: Sequence[Param]) -> str:
    """``(x, axes=None)``: parameters as an author gives them."""
    words: list[str] = []
    for p in params:
        if isinstance(p, Operand):
            words.append(f"*{p.name}" if p.many else f"{p.name}=None" if p.optional else p.name)
        else:
            words.append(p.name if p.default is REQUIRED else f"{p.name}={p.default!r}")
    return f"({', '.join(words)})"


def _wrong(op: str, name: str, wants: str, value: object, span: Span | None) -> None:
    refuse("op-attribute", span, op=op, name=name, wants=wants, found=repr(value))


def integer(value: object, op: str, name: str, span: Span | None) -> Dim:
    """An integer or index expression."""
    if isinstance(value, (int, Expr)) and not isinstance(value, bool):
        return value
    _wrong(op, name, "an integer", value, span)
    raise AssertionError


def constant(value: object, op: str, name: str, span: Span | None) -> int:
    """An integer known at compile time."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    _wrong(op, name, "a compile-time integer", value, span)
    raise AssertionError


def number(value: object, op: str, name: str, span: Span | None) -> float | int:
    """A Python number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    _wrong(op, name, "a number", value, span)
    raise AssertionError


def number_or_none(value: object, op: str, name: str, span: Span | None) -> float | int | None:
    return None if value is None else number(value, op, name, span)


def scalar(value: object, op: str, name: str, span: Span | None) -> float | int | bool:
    """A number or a truth value."""
    return value if isinstance(value, bool) else number(value, op, name, span)


def flag(value: object, op: str, name: str, span: Span | None) -> bool:
    if isinstance(value, bool):
        return value
    _wrong(op, name, "True or False", value, span)
    raise AssertionError


def text(value: object, op: str, name: str, span: Span | None) -> str:
    if isinstance(value, str):
        return value
    _wrong(op, name, "a string", value, span)
    raise AssertionError


def constants(value: object, op: str, name: str, span: Span | None) -> tuple[int, ...]:
    """One compile-time integer or a sequence of them."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(constant(v, op, name, span) for v in items)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def integers(value: object, op: str, name: str, span: Span | None) -> tuple[Dim, ...]:
    """One integer or index expression, or a sequence of them."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(integer(v, op, name, span) for v in items)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def dtype(value: object, op: str, name: str, span: Span | None) -> DType:
    return dtype_of(value, span)


def dtype_or_none(value: object, op: str, name: str, span: Span | None) -> DType | None:
    return None if value is None else dtype_of(value, span)


def tensor_type(value: object, op: str, name: str, span: Span | None) -> TensorType:
    """A type written ``Tensor[...]``."""
    if isinstance(value, TensorType):
        return value
    _wrong(op, name, 'a type such as Tensor[(128, 64), "f32", "rmem"]', value, span)
    raise AssertionError


def choice(*names: str) -> Callable[[object, str, str, Span | None], str]:
    """One of ``names``, in any case; an enum member counts by its name."""

    def convert(value: object, op: str, name: str, span: Span | None) -> str:
        word = value.name if isinstance(value, Enum) else value
        if isinstance(word, str) and word.lower() in names:
            return word.lower()
        _wrong(op, name, "one of " + " ".join(names), value, span)
        raise AssertionError

    return convert


def anything(value: object, op: str, name: str, span: Span | None) -> object:
    """Left as written; the operation itself judges it."""
    return value
