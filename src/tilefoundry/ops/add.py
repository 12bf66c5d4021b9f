"""add: out[i] = lhs[i] + rhs[i], rounded once to the promoted dtype."""

from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Example

OP = Binary(
    "add",
    "add",
    linear="sum",
    examples=(
        *over(*FLOATS, "i32", "i64", "u8", shapes=((4, 8), (4, 8))),
        Example((((4, 8), "bf16"), ((), "bf16"))),
        Example((((4, 8), "f16"), ((8,), "f16"))),
        Example((((4, 1), "bf16"), ((1, 8), "f32"))),
        Example((((4, 1), "i32"), ((8,), "f16"))),
    ),
)
