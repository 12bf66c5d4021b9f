"""index_add: out = dst, then out[.., index[j], ..] += src[.., j, ..] along dim for every j.

Rounding: f16 and bf16 sums are taken in float32 in the order of j and rounded once;
f32 and f64 sums round at each addition; integers wrap. An index outside
0 .. extent - 1 is refused at evaluation; a repeated index adds each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.types import Type
from tilefoundry.ops._movement import checked_index, demand_addable, sum_dtype
from tilefoundry.ops._update import Update
from tilefoundry.ops.base import Call, Example, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_summed


class IndexAdd(Update):
    name = "index_add"
    examples = (
        Example(
            (((5, 4), "f32"), ((7,), "i64"), ((7, 4), "f32")), {"dim": 0}, ("any", "index", "any")
        ),
        Example(
            (((3, 5), "bf16"), ((6,), "i32"), ((3, 6), "bf16")),
            {"dim": -1},
            ("any", "index", "any"),
        ),
        Example(
            (((5, 4), "i32"), ((3,), "i64"), ((3, 4), "i32")),
            {"dim": 0},
            ("small", "index", "small"),
        ),
        Example(
            (((5, 4), "f16"), ((0,), "i64"), ((0, 4), "f16")), {"dim": 0}, ("any", "index", "any")
        ),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        demand_addable(call, call.arg(0).dtype)
        return super().results(call)

    def partial_values(self, call: Call) -> tuple[Partial, ...]:
        return partial_summed("tf.index_add", (call.args[0], None, call.args[2]), call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        dst, index, src = args
        dim = attrs["dim"] % dst.dim()
        at = checked_index(self.name, index, dst.shape[dim], dim)
        wide = sum_dtype(dst)
        return dst.to(wide).index_add(dim, at, src.to(wide)).to(dst.dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        src = call.arg(2)
        return work(src.dtype, **{"float" if src.dtype.is_float else "int": src.size})


OP = IndexAdd()
