"""cmp_lt: out[i] = lhs[i] < rhs[i], a bool, compared in the promoted dtype."""

from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Example

OP = Binary(
    "cmp_lt",
    "lt",
    kinds=("float", "int", "uint", "bool"),
    compares=True,
    examples=(
        *over(*FLOATS, "i32", "u8", "bool", shapes=((4, 8), (4, 8)), values="small"),
        Example((((4, 8), "bf16"), ((8,), "f32")), values="small"),
        Example((((4, 8), "i64"), ((), "i64")), values="small"),
    ),
)
