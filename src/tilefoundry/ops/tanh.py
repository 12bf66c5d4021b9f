"""tanh: out[i] = tanh x[i].

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "tanh",
    "tanh",
    kinds=("float",),
    flops=0,
    special=1,
    examples=over(*FLOATS),
)
