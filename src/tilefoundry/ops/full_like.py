"""full_like: out[i] = value, in the shape, dtype and distribution of x.

``value`` is rounded to x's dtype once; x's elements are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.types import Type
from tilefoundry.ops._elementwise import FLOATS, over
from tilefoundry.ops._movement import demand_value
from tilefoundry.ops.base import Call, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, scalar


class FullLike(Op):
    name = "full_like"
    params = (Operand("x"), Attr("value", scalar))
    examples = (
        *over(*FLOATS, value=0.1),
        *over("i32", value=-7),
        *over("bool", value=True),
        *over("fp8e4m3", value=1.5),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand_value(call, "value", x.dtype)
        return (Result(x.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return elementwise(shapes[0], [call.arg(0).shape])

    def partial(self, call: Call) -> tuple[Partial, ...]:
        """Nothing of x but its type arrives, so the result is whole."""
        return ()

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        value = torch.tensor(attrs["value"], dtype=torch.float64 if x.is_floating_point() else None)
        return value.to(x.dtype).to(x.device).expand(x.shape).clone()

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = FullLike()
