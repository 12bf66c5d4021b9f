"""floor_div: out[i] = ⌊lhs[i] / rhs[i]⌋; exact for integers, floats round the floor once."""

from tilefoundry.ops._elementwise import FLOATS, over
from tilefoundry.ops._integer_division import Floored
from tilefoundry.ops.base import Example

OP = Floored(
    "floor_div",
    "floor_divide",
    examples=(
        *over(*FLOATS, "i32", "i64", "u8", shapes=((4, 8), (4, 8)), values=("any", "positive")),
        Example((((4, 8), "i32"), ((8,), "i64")), values=("any", "positive")),
    ),
)
