"""log2: out[i] = log2 x[i]: -inf at 0, NaN below.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "log2",
    "log2",
    kinds=("float",),
    flops=0,
    special=1,
    examples=over(*FLOATS, values="positive"),
)
