"""sigmoid: out[i] = 1 / (1 + e^-x[i]).

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops.base import Bits

OP = Unary(
    "sigmoid",
    "sigmoid",
    kinds=("float",),
    flops=2,  # negate and add; exp and a reciprocal
    special=2,
    bits=Bits.WHOLE,
    examples=over(*FLOATS),
)
