"""scatter_add: out = dst, then out[i with i_axis replaced by index[i]] += src[i] for every i.

Rounding: f16 and bf16 sums are taken in float32 and rounded once; f32 and f64 sums
round at each addition; integers wrap. ``index`` and ``src`` have one shape, of dst's
rank and, but for ``axis``, with extents not above dst's. An index outside
0 .. extent - 1 is refused at evaluation; a repeated index adds each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import Type
from tilefoundry.ops._movement import (
    axis_of,
    checked_index,
    demand_addable,
    demand_index,
    demand_same,
    sum_dtype,
)
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_summed, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, constant


class ScatterAdd(Op):
    name = "scatter_add"
    params = (Operand("dst"), Operand("index"), Operand("src"), Attr("axis", constant))
    examples = (
        Example(
            (((5, 4), "f32"), ((7, 4), "i64"), ((7, 4), "f32")),
            {"axis": 0},
            ("any", "index", "any"),
        ),
        Example(
            (((3, 5), "bf16"), ((3, 6), "i32"), ((3, 6), "bf16")),
            {"axis": -1},
            ("any", "index", "any"),
        ),
        Example(
            (((3, 5), "i32"), ((2, 6), "i64"), ((2, 6), "i32")),
            {"axis": 1},
            ("small", "index", "small"),
        ),
        Example(
            (((3, 5), "f16"), ((3, 0), "i64"), ((3, 0), "f16")),
            {"axis": 1},
            ("any", "index", "any"),
        ),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        dst, index, src = call.arg(0), demand_index(call, 1), call.arg(2)
        demand_addable(call, dst.dtype)
        demand_same(call, dst, src)
        axis = axis_of(call, call.attrs["axis"], dst.rank)
        if index.rank != dst.rank or any(
            n != axis and bounds(have - want)[0] < 0
            for n, (have, want) in enumerate(zip(dst.shape, index.shape, strict=False))
        ):
            wants = f"an index of rank {dst.rank} whose extents fit {dst} but for axis {axis}"
            call.refuse("index-shapes", wants=wants, found=index)
        if src.shape != index.shape:
            wants = f"src of the index's shape {shape_text(index.shape)}"
            call.refuse("index-shapes", wants=wants, found=src)
        return (Result(dst.shape, dst.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis, index = call.attrs["axis"] % call.arg(0).rank, call.arg(1)
        dims = domain(
            [(f"i{n}", e, False) for n, e in enumerate(shapes[0])]
            + [("j", index.shape[axis], True)]
        )
        *here, j = (d.var.expr() for d in dims)
        at = tuple(here)
        read = (*at[:axis], j, *at[axis + 1 :])
        return AccessRelation(dims, (at, read, read), (at,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        refuse_partial("tf.scatter_add", (None, call.args[1]), call.span)
        return partial_summed("tf.scatter_add", (call.args[0], None, call.args[2]), call.span)

    def storage(self, call: Call) -> str:
        """With dst: it is updated where it lies."""
        return call.arg(0).storage

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        dst, index, src = args
        axis = attrs["axis"] % dst.dim()
        at = checked_index(self.name, index, dst.shape[axis], axis)
        wide = sum_dtype(dst)
        return dst.to(wide).scatter_add(axis, at, src.to(wide)).to(dst.dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        src = call.arg(2)
        return work(src.dtype, **{"float" if src.dtype.is_float else "int": src.size})


OP = ScatterAdd()
