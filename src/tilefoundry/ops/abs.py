"""abs: out[i] = |x[i]|; exact (the smallest integer of a signed dtype stays itself)."""

from tilefoundry.ops._elementwise import FLOATS, Unary, over

OP = Unary("abs", "abs", examples=over(*FLOATS, "i32", "i64", "u8"))
