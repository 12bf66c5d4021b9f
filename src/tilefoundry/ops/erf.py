"""erf: out[i] = 2/√π · ∫₀^x[i] e^(-t²) dt.

Computed in float32 for 16-bit dtypes (float64 for f64) and rounded once.
"""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary(
    "erf",
    "erf",
    kinds=("float",),
    flops=0,
    special=1,
    examples=over(*FLOATS),
)
