"""Index expressions for all units at once: int64 arrays in place of integers."""

from __future__ import annotations

from collections.abc import Mapping
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


def _divisor(value: Any) -> Any:
    """numpy gives 0 for a division of integers by zero."""
    if np.any(value == 0):
        raise ZeroDivisionError
    return value
