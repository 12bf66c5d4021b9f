"""exp2: out[i] = 2^x[i].

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over
from tilefoundry.ops.base import Bits

OP = Unary(
    "exp2",
    "exp2",
    kinds=("float",),
    flops=0,
    special=1,
    bits=Bits.WHOLE,
    examples=over(*FLOATS),
)
