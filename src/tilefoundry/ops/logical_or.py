"""logical_or: out[i] = lhs[i] ∨ rhs[i], a bool; a number is true unless it is 0."""

from tilefoundry.ops._elementwise import Binary, over
from tilefoundry.ops.base import Example

OP = Binary(
    "logical_or",
    "logical_or",
    kinds=("float", "int", "uint", "bool"),
    compares=True,
    examples=(
        *over("bool", "i32", "f32", "bf16", shapes=((4, 8), (4, 8)), values="small"),
        Example((((4, 1), "bool"), ((8,), "bool")), values="small"),
    ),
)
