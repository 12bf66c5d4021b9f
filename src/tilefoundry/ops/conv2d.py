"""conv2d: out[n, o, y, x] = bias[o] + sum_{c, i, j} input[n, g·C + c, Y, X] · weight[o, c, i, j].

Y = y·s + i·d - p, X = x·s + j·d - p with s, d, p the stride, dilation, padding, one
number or one per axis. Shapes: input (batch, groups·C, height, width), weight (out
channels, C, kernel height, kernel width), bias (out channels); g = o // (out channels
/ groups); the input is 0 outside its extents.
Rounding: products and sums, the bias among them, in float32 (float64 for f64),
rounded once to the operands' dtype.
"""

from tilefoundry.ops._conv import Conv
from tilefoundry.ops.base import Example

OP = Conv(
    "conv2d",
    2,
    (
        Example((((2, 3, 6, 7), "f32"), ((4, 3, 3, 2), "f32"), ((4,), "f32"))),
        Example(
            (((1, 4, 5, 6), "bf16"), ((6, 2, 3, 3), "bf16"), None),
            {"padding": (1, 2), "stride": (2, 1), "groups": 2},
        ),
        Example((((1, 2, 7, 7), "f16"), ((2, 1, 2, 3), "f16"), None), {"dilation": 2, "groups": 2}),
        Example((((0, 2, 4, 4), "f32"), ((3, 2, 1, 1), "f32"), ((3,), "f32"))),
    ),
)
