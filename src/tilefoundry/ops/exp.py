"""exp: out[i] = e^x[i], computed in float32 for 16-bit dtypes and rounded once."""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "exp",
    "exp",
    kinds=("float",),
    flops=0,
    special=1,
    examples=over(*FLOATS),
)
