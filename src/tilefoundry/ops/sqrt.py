"""sqrt: out[i] = √x[i], NaN below 0.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "sqrt",
    "sqrt",
    kinds=("float",),
    flops=0,
    special=1,
    examples=over(*FLOATS, values="positive"),
)
