"""conv1d: out[n, o, l] = bias[o] + sum_{c, k} input[n, g·C + c, l·s + k·d - p] · weight[o, c, k].

s, d, p: stride, dilation, padding. Shapes: input (batch, groups·C, length), weight
(out channels, C, kernel), bias (out channels); g = o // (out channels / groups); the
input is 0 outside its length.
Rounding: products and sums, the bias among them, in float32 (float64 for f64),
rounded once to the operands' dtype.
"""

from tilefoundry.ops._conv import Conv
from tilefoundry.ops.base import Example

OP = Conv(
    "conv1d",
    1,
    (
        Example((((2, 3, 9), "f32"), ((4, 3, 3), "f32"), ((4,), "f32"))),
        Example((((2, 4, 9), "bf16"), ((6, 2, 3), "bf16"), None), {"padding": 1, "groups": 2}),
        Example(
            (((2, 4, 9), "f16"), ((4, 1, 4), "f16"), ((4,), "f16")), {"padding": (3,), "groups": 4}
        ),
        Example((((1, 2, 11), "f64"), ((3, 2, 3), "f64"), None), {"stride": 2, "dilation": 3}),
        Example((((0, 2, 5), "f32"), ((3, 2, 1), "f32"), None)),
    ),
)
