"""exp: out[i] = e^x[i], computed in float32 for 16-bit dtypes and rounded once."""

from tilefoundry.ops._elementwise import Unary
from tilefoundry.ops.base import Example

OP = Unary(
    "exp",
    "exp",
    kinds=("float",),
    flops=0,
    special=1,
    examples=(Example((((4, 8), "f32"),)), Example((((4, 8), "bf16"),))),
)
