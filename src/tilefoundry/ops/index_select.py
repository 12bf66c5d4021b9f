"""index_select: out[a.., j.., b..] = x[a.., index[j..], b..], index's axes in the place of dim.

Moves bits; nothing is rounded. Without ``fill_value`` an index outside 0 .. extent - 1
is refused at evaluation; with it, such an index gives ``fill_value`` (rounded once to
x's dtype). ``index`` holds integers and has one axis or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import AccessRelation, Coord, Indirect, domain
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import (
    as_bits,
    axis_of,
    checked_index,
    demand_index,
    demand_value,
    partial_filled,
    value_bits,
)
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, constant, scalar


def scalar_or_none(value: object, op: str, name: str, span: Span | None) -> float | None:
    return None if value is None else scalar(value, op, name, span)


class IndexSelect(Op):
    name = "index_select"
    params = (
        Operand("x"),
        Operand("index"),
        Attr("dim", constant),
        Attr("fill_value", scalar_or_none, None),
    )
    examples = (
        Example((((5, 4), "f32"), ((3,), "i64")), {"dim": 0}, ("any", "index")),
        Example((((2, 5, 4), "bf16"), ((7,), "i32")), {"dim": -2}, ("any", "index")),
        Example((((5, 4), "fp8e4m3"), ((2, 3), "i64")), {"dim": 0}, ("any", "index")),
        Example((((5, 4), "i32"), ((0,), "i64")), {"dim": 1}, ("any", "index")),
        Example((((5, 4), "f16"), ((6,), "i64")), {"dim": 0, "fill_value": -2.5}, ("any", "small")),
        Example((((0, 4), "f32"), ((6,), "i64")), {"dim": 0, "fill_value": 1}, ("any", "small")),
    )

    def axis(self, call: Call) -> int:
        return axis_of(call, call.attrs["dim"], call.arg(0).rank)

    def results(self, call: Call) -> tuple[Result, ...]:
        x, index, axis = call.arg(0), demand_index(call, 1), self.axis(call)
        if index.rank == 0:
            call.refuse("index-shapes", wants="an index of rank 1 or more", found=index)
        if call.attrs["fill_value"] is not None:
            demand_value(call, "fill_value", x.dtype)
        return (Result((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis, width = self.axis(call), call.arg(1).rank
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        read: tuple[Coord, ...] = (*here[:axis], Indirect(1), *here[axis + width :])
        return AccessRelation(dims, (read, here[axis : axis + width]), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        op = "tf.index_select"
        refuse_partial(op, (None, call.args[1]), call.span)
        return partial_filled(op, call.arg(0), call.attrs["fill_value"], call.span)

    def storage(self, call: Call) -> str:
        """With x: the index only says which part."""
        return call.arg(0).storage

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        x, index = args
        assert isinstance(result, TensorType)
        dim, fill = attrs["dim"] % x.dim(), attrs["fill_value"]
        extent = x.shape[dim]
        bits = as_bits(x)
        if fill is None:
            at = checked_index(self.name, index, extent, dim)
            out = bits.index_select(dim, at.reshape(-1)).reshape(result.shape)
        else:
            at = index.to(torch.int64)
            valid = (at >= 0) & (at < extent)
            valid = valid.reshape((*valid.shape, *(1,) * (x.dim() - dim - 1)))
            out = bits.new_full(result.shape, value_bits(fill, result.dtype))
            if extent:
                found = bits.index_select(dim, at.clamp(0, extent - 1).reshape(-1))
                out = torch.where(valid, found.reshape(result.shape), out)
        return out.view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = IndexSelect()
