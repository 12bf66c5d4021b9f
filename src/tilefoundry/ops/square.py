"""square: out[i] = x[i]², rounded once; integers modulo 2^bits."""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary("square", "square", examples=over(*FLOATS, "i32"))
