"""mul: out[i] = lhs[i] · rhs[i], rounded once to the promoted dtype."""

from tilefoundry.ops._elementwise import Binary
from tilefoundry.ops.base import Example

OP = Binary(
    "mul",
    "mul",
    linear="scale",
    examples=(
        Example((((4, 8), "f32"), ((4, 8), "f32"))),
        Example((((4, 8), "f16"), ((8,), "f16"))),
        Example((((4, 8), "bf16"), ((4, 1), "f32"))),
        Example((((4, 8), "i32"), ((4, 8), "i32"))),
    ),
)
