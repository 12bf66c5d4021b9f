"""Index expressions for all units at once: int64 arrays in place of integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, MinMax, Mod, Sym


def values(x: Dim, env: Mapping[Sym, Any]) -> Any:
    """The value of ``x`` where symbols are integers or arrays of one length.

    An integer if no array reaches it. Raises ZeroDivisionError if any unit divides by zero.
    """
    if not isinstance(x, Expr):
        return x
    total: Any = 0
    for mono, coef in x.terms:
        value: Any = coef
        for atom in mono:
            value = value * _atom(atom, env)
        total = total + value
    return total


def _atom(atom: Atom, env: Mapping[Sym, Any]) -> Any:
    if isinstance(atom, Sym):
        return env[atom]
    if isinstance(atom, FloorDiv):
        return values(atom.num, env) // _divisor(values(atom.den, env))
    if isinstance(atom, Mod):
        return values(atom.num, env) % _divisor(values(atom.den, env))
    assert isinstance(atom, MinMax)
    pick = np.minimum if atom.name == "min" else np.maximum
    args = [values(a, env) for a in atom.args]
    if all(isinstance(a, int) for a in args):
        return min(args) if atom.name == "min" else max(args)
    out = args[0]
    for arg in args[1:]:
        out = pick(out, arg)
    return out


def spans(x: Dim, env: Mapping[Sym, tuple[Any, Any]]) -> tuple[Any, Any]:
    """Bounds of ``x`` where symbols lie between two integers or arrays of one length, inclusive.

    Exact where no symbol has a choice. Raises ZeroDivisionError if a divisor may be zero.
    """
    if not isinstance(x, Expr):
        return x, x
    low: Any = 0
    high: Any = 0
    for mono, coef in x.terms:
        term = (coef, coef)
        for atom in mono:
            term = _corners(term, _atom_spans(atom, env), lambda a, b: a * b)
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_spans(atom: Atom, env: Mapping[Sym, tuple[Any, Any]]) -> tuple[Any, Any]:
    if isinstance(atom, Sym):
        return env[atom]
    if isinstance(atom, MinMax):
        pick = np.minimum if atom.name == "min" else np.maximum
        args = [spans(a, env) for a in atom.args]
        low, high = args[0]
        for a, b in args[1:]:
            low, high = pick(low, a), pick(high, b)
        return low, high
    assert isinstance(atom, (FloorDiv, Mod))
    num, den = spans(atom.num, env), spans(atom.den, env)
    if np.any(np.asarray(den[0]) <= 0):
        raise ZeroDivisionError
    quotient = _corners(num, den, lambda a, b: a // b)
    if isinstance(atom, FloorDiv):
        return quotient
    # within one quotient of one divisor a remainder grows with what is divided
    same = (quotient[0] == quotient[1]) & (den[0] == den[1])
    return (
        np.where(same, num[0] - quotient[0] * den[0], 0),
        np.where(same, num[1] - quotient[0] * den[0], den[1] - 1),
    )


def _corners(
    a: tuple[Any, Any], b: tuple[Any, Any], of: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Bounds of a function that is monotone in each of its two arguments."""
    sides = [(a[0],) if a[0] is a[1] else a, (b[0],) if b[0] is b[1] else b]
    first, *rest = (of(x, y) for x in sides[0] for y in sides[1])
    low = high = first
    for one in rest:
        low, high = np.minimum(low, one), np.maximum(high, one)
    return low, high


def _divisor(value: Any) -> Any:
    """numpy gives 0 for a division of integers by zero."""
    if np.any(value == 0):
        raise ZeroDivisionError
    return value
