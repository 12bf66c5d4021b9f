"""Binding a call: open extents from shapes, inputs against types, attributes to integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, OpenDim, Sym
from tilefoundry.ir.node import Node
from tilefoundry.ir.program import Func
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.ops.base import torch_dtype


def bind_dims(func: Func, inputs: Mapping[str, Any], given: Mapping[Sym, int]) -> dict[Sym, int]:
    """Open extents from the inputs' shapes; refuses one that stays open or leaves its range."""
    bound: dict[Sym, int] = dict(given)
    for param in func.params:
        shape = tuple(inputs[param.name].shape)
        if len(shape) != param.tensor.rank:
            continue
        for extent, size in zip(param.tensor.shape, shape, strict=True):
            _solve(extent, size, bound)
    for dim in func.opens:
        if dim not in bound:
            refuse("dim-unbound", func.span, name=dim.name, func=func.name)
        if not dim.lo <= bound[dim] <= dim.hi:
            refuse("dim-range", func.span, name=dim.name, value=bound[dim], lo=dim.lo, hi=dim.hi)
    return bound


def _solve(extent: Dim, size: int, bound: dict[Sym, int]) -> None:
    """Bind the one open symbol of a linear extent that has this size."""
    if not isinstance(extent, Expr):
        return
    left = ix.substitute(extent, {s: v for s, v in bound.items()})
    if not isinstance(left, Expr):
        return
    symbols = [s for s in ix.symbols(left) if isinstance(s, OpenDim)]
    linear = [(m, c) for m, c in left.terms if m]
    if len(symbols) != 1 or len(linear) != 1 or linear[0][0] != (symbols[0],):
        return
    constant = next((c for m, c in left.terms if not m), 0)
    if (size - constant) % linear[0][1] == 0:
        bound[symbols[0]] = (size - constant) // linear[0][1]


def check_input(param: Node, value: Any, dims: Mapping[Sym, int]) -> None:
    """Refuse an input whose shape or dtype is not the parameter's."""
    type = concrete(param.tensor, lambda e: ix.evaluate(e, dims))
    if tuple(value.shape) != type.shape:
        got = tuple(value.shape)
        refuse("input-shape", param.span, name=param.name, want=type.shape, got=got)
    want = torch_dtype(type.dtype)
    if value.dtype != want:
        refuse("input-dtype", param.span, name=param.name, want=want, got=value.dtype)


def concrete(value: Any, of: Callable[[Expr], int]) -> Any:
    """The value with every index expression replaced by its integer."""
    if isinstance(value, Expr):
        return of(value)
    if isinstance(value, TensorType):
        if all(isinstance(e, int) for e in value.shape):
            return value
        return TensorType(concrete(value.shape, of), value.dtype, None, value.storage)
    if isinstance(value, TupleType):
        return TupleType(tuple(concrete(t, of) for t in value.items))
    if isinstance(value, Mapping):
        return {k: concrete(v, of) for k, v in value.items()}
    if type(value) is tuple:
        return tuple(concrete(v, of) for v in value)
    return value
