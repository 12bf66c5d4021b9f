"""logical_not: out[i] = ¬x[i], a bool; a number is true unless it is 0."""

from tilefoundry.ops._elementwise import Unary, over

OP = Unary(
    "logical_not",
    "logical_not",
    kinds=("float", "int", "uint", "bool"),
    compares=True,
    examples=over("bool", "i32", "f16", "f32", values="small"),
)
