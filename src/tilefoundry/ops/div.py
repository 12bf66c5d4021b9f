"""div: out[i] = lhs[i] / rhs[i], rounded once; integers divide as f32 and give f32."""

from __future__ import annotations

from tilefoundry.ir.dtype import F32
from tilefoundry.ir.expr import product
from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Call, Example, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_scaled, refuse_partial


class Div(Binary):
    def results(self, call: Call) -> tuple[Result, ...]:
        (found,) = super().results(call)
        return (found if found.dtype.is_float else Result(found.shape, F32),)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        """The dividend may be a partial sum; a divisor may not."""
        if call.arg(1).partial:
            return refuse_partial("tf.div", (None, call.args[1]), call.span)
        return partial_scaled("tf.div", call.args, call.span)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        (result,) = self.results(call)
        n = product(shapes[0])
        # a division is a reciprocal and a multiplication
        return work(result.dtype, special=n, float=n)


OP = Div(
    "div",
    "true_divide",
    examples=(
        *over(*FLOATS, "i32", shapes=((4, 8), (4, 8)), values=("any", "positive")),
        Example((((4, 8), "bf16"), ((4, 1), "f32")), values=("any", "positive")),
        Example((((4, 8), "f32"), ((), "f32")), values=("any", "positive")),
    ),
)
