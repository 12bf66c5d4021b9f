"""unary: out[i] = kind(x[i]), ``kind`` a UnaryKind or the name of such an operation.

Rounds where the operation it names does.
"""

from tilefoundry.ops._by_kind import ByKind
from tilefoundry.ops._elementwise import over
from tilefoundry.ops.signature import Operand

KINDS = (
    *("neg", "abs", "rsqrt", "sqrt", "square", "exp", "exp2", "log", "log2", "ceil", "floor"),
    *("round", "logical_not", "relu", "sigmoid", "silu", "softplus", "tanh", "erf", "sin", "cos"),
)

OP = ByKind(
    "unary",
    (Operand("x"),),
    KINDS,
    (
        *over("f32", "bf16", kind="exp"),
        *over("i32", kind="NEG"),
        *over("bool", kind="logical_not"),
        *over("f16", values="positive", kind="rsqrt"),
    ),
)
