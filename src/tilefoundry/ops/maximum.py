"""maximum: out[i] = max(lhs[i], rhs[i]); exact, NaN if either is NaN."""

from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Example

OP = Binary(
    "maximum",
    "maximum",
    examples=(
        *over(*FLOATS, "i32", "u8", shapes=((4, 8), (4, 8))),
        Example((((4, 8), "bf16"), ((), "bf16"))),
        Example((((4, 1), "f16"), ((8,), "f32"))),
    ),
)
