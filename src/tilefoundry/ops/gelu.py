"""gelu: out[i] = x/2 · (1 + erf(x / √2)) with x = x[i].

``approximate="tanh"``: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))). Computed in float32
for 16-bit dtypes (float64 for f64) and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops.base import Bits, Call, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, choice


class Gelu(Unary):
    params = (Operand("x"), Attr("approximate", choice("none", "tanh"), "none"))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        wide = x.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
        return torch.nn.functional.gelu(wide, approximate=attrs["approximate"]).to(x.dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n = product(shapes[0])
        # erf form: scale, add, halve, multiply; tanh form: four more for the cubic
        flops = 4 if call.attrs["approximate"] == "none" else 8
        return work(call.arg(0).dtype, float=flops * n, special=n)


OP = Gelu(
    "gelu",
    "nn.functional.gelu",
    kinds=("float",),
    bits=Bits.WHOLE,
    examples=over(*FLOATS) + over(*FLOATS, approximate="tanh"),
)
