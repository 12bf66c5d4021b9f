"""relu: out[i] = max(x[i], 0); exact."""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary("relu", "relu", examples=over(*FLOATS, "i32"))
