"""cumsum: out[i] = Σ_{j ≤ i} x[j] along one axis; integers and bools sum as i64.

Sums of 16-bit dtypes are kept in float32 or wider; each result is rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.dtype import I64
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import along, axis_of
from tilefoundry.ops._elementwise import FLOATS, demand, over
from tilefoundry.ops.base import Bits, Call, Op, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_scaled
from tilefoundry.ops.signature import Attr, Operand, constant


class CumSum(Op):
    name = "cumsum"
    bits = Bits.ROWS
    params = (Operand("x"), Attr("axis", constant, -1))
    examples = (
        *over(*FLOATS, "i32", "bool"),
        *over("f32", shapes=((2, 6, 3),), axis=1),
        *over("bf16", axis=-2),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand(call, x.dtype, ("float", "int", "uint", "bool"))
        axis_of(call, x.rank)
        return (Result(x.shape, x.dtype if x.dtype.is_float else I64),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return along(shapes[0], (axis_of(call, call.arg(0).rank),))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_scaled("tf.cumsum", call.args, call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        return args[0].cumsum(attrs["axis"])

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        (result,) = self.results(call)
        kind = "float" if result.dtype.is_float else "int"
        # one addition per element
        return work(result.dtype, **{kind: call.arg(0).size})


OP = CumSum()
