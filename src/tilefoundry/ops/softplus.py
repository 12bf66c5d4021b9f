"""softplus: out[i] = ln(1 + e^x[i]), and x[i] itself above 20.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops.base import Bits

OP = Unary(
    "softplus",
    "nn.functional.softplus",
    kinds=("float",),
    flops=2,  # add and compare with 20; exp and log
    special=2,
    bits=Bits.WHOLE,
    examples=over(*FLOATS),
)
