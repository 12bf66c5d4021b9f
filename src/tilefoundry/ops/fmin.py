"""fmin: out[i] = min(lhs[i], rhs[i]); exact, the other where one is NaN (IEEE 754-2019,
minimumNumber)."""

from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Example

OP = Binary(
    "fmin",
    "fmin",
    kinds=("float",),
    examples=(
        *over(*FLOATS, shapes=((4, 8), (4, 8))),
        Example((((4, 8), "bf16"), ((), "bf16"))),
        Example((((4, 1), "f16"), ((8,), "f32"))),
    ),
)
