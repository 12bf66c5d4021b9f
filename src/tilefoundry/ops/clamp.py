"""clamp: out[i] = min(max(x[i], min_val), max_val); exact, NaN stays NaN.

Bounds are numbers; either may be None. For bounds that are tensors write
``tf.minimum(tf.maximum(x, lo), hi)``. They are rounded to x's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops._movement import demand_value
from tilefoundry.ops.base import Call, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, number_or_none


class Clamp(Unary):
    params = (
        Operand("x"),
        Attr("min_val", number_or_none, None),
        Attr("max_val", number_or_none, None),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        found = super().results(call)
        given = [n for n in ("min_val", "max_val") if call.attrs[n] is not None]
        if not given:
            takes = "(x, min_val=None, max_val=None)"
            call.refuse("op-arguments", takes=takes, problem="min_val and max_val are both missing")
        for name in given:
            demand_value(call, name, found[0].dtype)
        return found

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        lo, hi = (
            None if v is None else torch.tensor(v, dtype=x.dtype, device=x.device)
            for v in (attrs["min_val"], attrs["max_val"])
        )
        return torch.clamp(x, lo, hi)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        sides = sum(call.attrs[n] is not None for n in ("min_val", "max_val"))
        dtype = call.arg(0).dtype
        kind = "float" if dtype.is_float else "int"
        return work(dtype, **{kind: sides * product(shapes[0])})


OP = Clamp(
    "clamp",
    "clamp",
    examples=(
        *over(*FLOATS, min_val=-0.5, max_val=0.75),
        *over("i32", "i64", min_val=-20, max_val=30),
        *over("f32", "bf16", min_val=0.1),
        *over("f16", max_val=0.0),
    ),
)
