"""topk: (values, indices) of the k largest (or smallest) elements along one axis.

Exact. Equal elements: the lower index first; NaN counts as the largest. ``sorted=False``
leaves the order open. Indices are i64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.dtype import I64
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import along, axis_of
from tilefoundry.ops._elementwise import demand, over
from tilefoundry.ops.base import Call, Op, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, constant, flag


class TopK(Op):
    name = "topk"
    params = (
        Operand("x"),
        Attr("k", constant),
        Attr("axis", constant, -1),
        Attr("largest", flag, True),
        Attr("sorted", flag, True),
    )
    examples = (
        *over("f32", "bf16", "f16", "i32", k=3),
        *over("f32", "i64", k=2, axis=0, largest=False),
        *over("i32", values="small", k=5, axis=1),
        *over("f32", k=8),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x, k = call.arg(0), call.attrs["k"]
        demand(call, x.dtype, ("float", "int", "uint"))
        axis = axis_of(call, x.rank)
        if k < 1 or bounds(x.shape[axis])[0] < k:
            call.refuse("topk-extent", k=k, axis=axis, extent=x.shape[axis])
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return Result(shape, x.dtype), Result(shape, I64)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        one = along(shapes[0], (axis_of(call, call.arg(0).rank),))
        return AccessRelation(one.domain, one.operands, one.results * 2)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        (x,) = args
        axis, k = attrs["axis"], attrs["k"]
        values, index = x.sort(dim=axis, descending=attrs["largest"], stable=True)
        return values.narrow(axis, 0, k), index.narrow(axis, 0, k)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        dtype, k = call.arg(0).dtype, call.attrs["k"]
        # each element against the k-th best, then by bisection into the kept ones
        count = call.arg(0).size * (1 + (k - 1).bit_length())
        return work(dtype, **{"float" if dtype.is_float else "int": count})


OP = TopK()
