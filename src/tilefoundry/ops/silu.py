"""silu: out[i] = x[i] / (1 + e^-x[i]).

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops.base import Bits

OP = Unary(
    "silu",
    "nn.functional.silu",
    kinds=("float",),
    flops=3,  # negate, add, multiply; exp and a reciprocal
    special=2,
    bits=Bits.WHOLE,
    examples=over(*FLOATS),
)
