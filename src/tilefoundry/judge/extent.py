"""Extents as text: what a child says about shapes, evaluated without executing anything."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilefoundry.judge.wire import Malformed

Extent: TypeAlias = int | str
"""A number, or an expression over the names of open extents."""

OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
CHOICES: Mapping[str, Callable[..., int]] = {"min": min, "max": max}


def extent(text: Extent, dims: Mapping[str, int]) -> int:
    """The value of an extent; KeyError for a name without a value."""
    if isinstance(text, int):
        return text
    try:
        return _value(ast.parse(text, mode="eval").body, dims)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError):
        raise Malformed(f"the extent {text!r}") from None


def _value(node: ast.expr, dims: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return dims[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, dims)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, dims), _value(right, dims))
        case ast.Call(func=ast.Name(id=name), args=args) if name in CHOICES and args:
            return CHOICES[name](*(_value(arg, dims) for arg in args))
        case _:
            raise ValueError(ast.dump(node))


def names(text: str) -> set[str]:
    """The names that an extent's text uses."""
    try:
        return {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
    except (SyntaxError, ValueError, RecursionError):
        raise Malformed(f"the extent {text!r}") from None
