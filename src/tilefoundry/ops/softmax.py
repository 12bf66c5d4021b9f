"""softmax: out[i] = e^(x[i] - m) / Σ_j e^(x[j] - m), m = max_j x[j], along one axis.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import along, axis_of, statistics
from tilefoundry.ops._elementwise import FLOATS, demand, over
from tilefoundry.ops.base import Bits, Call, Op, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, constant


class Softmax(Op):
    name = "softmax"
    bits = Bits.ROWS
    params = (Operand("x"), Attr("axis", constant, -1))
    examples = (
        *over(*FLOATS, axis=-1),
        *over("f32", "bf16", axis=0),
        *over("f32", "f16", shapes=((2, 6, 4),), axis=1),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand(call, x.dtype, ("float",))
        axis_of(call, x.rank)
        return (Result(x.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return along(shapes[0], (axis_of(call, call.arg(0).rank),))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        # along other axes than the last one torch's bits depend on what is computed along with them
        last = x.movedim(attrs["axis"], -1).contiguous()
        found = torch.softmax(last, -1, dtype=wide).to(x.dtype)
        return found.movedim(-1, attrs["axis"]).contiguous()

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        axis = axis_of(call, call.arg(0).rank)
        n = product(shapes[0])
        rows = product(e for d, e in enumerate(shapes[0]) if d != axis)
        # max, subtract, add, multiply by the reciprocal; an exp each, a reciprocal a row
        return work(statistics(call.arg(0).dtype), float=4 * n, special=n + rows)


OP = Softmax()
