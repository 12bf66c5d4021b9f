"""rms_norm: out[i] = x[i] · rsqrt(mean_j x[j]² + eps) · weight[i], along the last axis.

Computed in float32 for 16-bit dtypes (float64 for f64), weight included, and rounded
once to x's dtype. A model that rounds before it scales writes the two steps out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import along, statistics
from tilefoundry.ops._elementwise import demand
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, number


def demand_weight(call: Call, n: int, shape: Shape) -> None:
    """Operand ``n``, if given, is a float tensor of the normalised axes' shape."""
    weight = call.args[n]
    if weight is None:
        return
    demand(call, weight.dtype, ("float",))
    if weight.shape != shape:
        call.refuse("norm-weight", operand=n, found=weight, wants=shape)


class RmsNorm(Op):
    name = "rms_norm"
    bits = Bits.ROWS
    params = (Operand("x"), Operand("weight", optional=True), Attr("eps", number, 1e-6))
    examples = (
        *(Example((((3, 8), d), ((8,), d))) for d in ("f32", "f16", "bf16", "f64")),
        Example((((2, 3, 8), "bf16"), ((8,), "f32")), {"eps": 1e-5}),
        Example((((3, 8), "f32"), None), {"eps": 0.0}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand(call, x.dtype, ("float",))
        if x.rank == 0:
            call.refuse("op-axis", axis=-1, rank=0)
        demand_weight(call, 1, x.shape[-1:])
        return (Result(x.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        rank = call.arg(0).rank
        return along(shapes[0], (rank - 1,), 0 if call.args[1] is None else 1)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        x, weight = args
        y = x.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + attrs["eps"])
        return (y if weight is None else y * weight.to(y.dtype)).to(x.dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n, rows = product(shapes[0]), product(shapes[0][:-1])
        # square, add, scale and weigh; a row: divide by n, add eps, rsqrt
        per = 3 if call.args[1] is None else 4
        return work(statistics(call.arg(0).dtype), float=per * n + 2 * rows, special=rows)


OP = RmsNorm()
