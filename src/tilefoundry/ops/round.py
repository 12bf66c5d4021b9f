"""round: out[i] = x[i] to the nearest integer, halves to the even one.

Exact.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "round",
    "round",
    kinds=("float",),
    flops=1,
    special=0,
    examples=over(*FLOATS),
)
