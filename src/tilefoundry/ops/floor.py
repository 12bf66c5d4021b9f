"""floor: out[i] = ⌊x[i]⌋.

Exact.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "floor",
    "floor",
    kinds=("float",),
    flops=1,
    special=0,
    examples=over(*FLOATS),
)
