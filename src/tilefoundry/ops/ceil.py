"""ceil: out[i] = ⌈x[i]⌉.

Exact.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "ceil",
    "ceil",
    kinds=("float",),
    flops=1,
    special=0,
    examples=over(*FLOATS),
)
