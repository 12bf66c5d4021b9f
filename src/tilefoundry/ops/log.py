"""log: out[i] = ln x[i]: -inf at 0, NaN below.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "log",
    "log",
    kinds=("float",),
    flops=1,  # log2 in hardware, scaled by ln 2
    special=1,
    examples=over(*FLOATS, values="positive"),
)
