"""neg: out[i] = -x[i]; exact for floats, modulo 2^bits for integers."""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary("neg", "neg", linear="scale", examples=over(*FLOATS, "i32", "i8", "u8"))
