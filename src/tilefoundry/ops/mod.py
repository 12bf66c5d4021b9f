"""mod: out[i] = lhs[i] - rhs[i] · ⌊lhs[i] / rhs[i]⌋, the sign of rhs, rounded once.

Exact for integers. Floats: the remainder is exact before the sign is corrected.
"""

from tilefoundry.ops._elementwise import FLOATS, over
from tilefoundry.ops._integer_division import Floored
from tilefoundry.ops.base import Example

OP = Floored(
    "mod",
    "remainder",
    examples=(
        *over(*FLOATS, "i32", "i64", "u8", shapes=((4, 8), (4, 8)), values=("any", "positive")),
        Example((((4, 8), "i32"), ((4, 1), "i32")), values=("any", "positive")),
    ),
)
