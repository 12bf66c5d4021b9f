"""pow: out[i] = x[i]^y[i], NaN for a fraction of a negative x.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Binary, over
from tilefoundry.ops.base import Bits, Example
from tilefoundry.ops.signature import Operand


class Pow(Binary):
    params = (Operand("x", number=True), Operand("y", number=True))


OP = Pow(
    "pow",
    "pow",
    kinds=("float",),
    flops=1,  # 2^(y · log2 x): exp2, log2 and a multiplication
    special=2,
    bits=Bits.WHOLE,
    examples=(
        *over(*FLOATS, shapes=((4, 8), (4, 8)), values=("positive", "any")),
        Example((((4, 8), "f32"), ((), "f32")), values=("positive", "any")),
        Example((((4, 1), "bf16"), ((8,), "f32")), values=("positive", "any")),
    ),
)
