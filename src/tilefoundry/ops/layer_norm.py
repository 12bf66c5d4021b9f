"""layer_norm: out = (x - mean) · rsqrt(var + eps) · weight + bias, over ``axis`` and all after.

The variance is the mean square deviation (no Bessel correction), from deviations.
Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once to x's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import along, axis_of, statistics
from tilefoundry.ops._elementwise import demand
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.rms_norm import demand_weight
from tilefoundry.ops.signature import Attr, Operand, constant, number


class LayerNorm(Op):
    name = "layer_norm"
    bits = Bits.ROWS
    params = (
        Operand("x"),
        Operand("weight", optional=True),
        Operand("bias", optional=True),
        Attr("axis", constant, -1),
        Attr("eps", number, 1e-5),
    )
    examples = (
        *(Example((((3, 8), d), ((8,), d), ((8,), d))) for d in ("f32", "f16", "bf16", "f64")),
        Example((((2, 3, 4), "f32"), ((3, 4), "f32"), ((3, 4), "f32")), {"axis": 1}),
        Example((((3, 8), "bf16"), ((8,), "f32"), None), {"eps": 1e-6}),
        Example((((3, 8), "f32"), None, None)),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand(call, x.dtype, ("float",))
        axis = axis_of(call, x.rank)
        for n in (1, 2):
            demand_weight(call, n, x.shape[axis:])
        return (Result(x.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        rank = call.arg(0).rank
        axes = range(axis_of(call, rank), rank)
        held = [0 if a is None else len(axes) for a in call.args[1:]]
        return along(shapes[0], axes, *held)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        x, weight, bias = args
        axes = tuple(range(attrs["axis"] % x.dim(), x.dim()))
        y = x.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
        y = y - y.mean(axes, keepdim=True)
        y = y * torch.rsqrt(y.square().mean(axes, keepdim=True) + attrs["eps"])
        y = y if weight is None else y * weight.to(y.dtype)
        return (y if bias is None else y + bias.to(y.dtype)).to(x.dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        axis = axis_of(call, call.arg(0).rank)
        n, rows = product(shapes[0]), product(shapes[0][:axis])
        # sum, subtract, square, sum, scale, weigh, shift; a row: two means, eps, rsqrt
        per = 5 + sum(a is not None for a in call.args[1:])
        return work(statistics(call.arg(0).dtype), float=per * n + 3 * rows, special=rows)


OP = LayerNorm()
