"""binary: out[i] = kind(lhs[i], rhs[i]), ``kind`` a BinaryKind or the name of such an operation.

Rounds where the operation it names does.
"""

from tilefoundry.ops._by_kind import ByKind
from tilefoundry.ops._elementwise import over
from tilefoundry.ops.signature import Operand

KINDS = (
    *("add", "sub", "mul", "div", "floor_div", "mod", "min", "max", "minimum", "maximum", "pow"),
    *("fmin", "fmax"),
    *("cmp_eq", "cmp_ne", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge", "logical_and", "logical_or"),
)

OP = ByKind(
    "binary",
    (Operand("lhs", number=True), Operand("rhs", number=True)),
    KINDS,
    (
        *over("f32", "bf16", shapes=((4, 8), (8,)), kind="add"),
        *over("i32", shapes=((4, 8), (4, 1)), kind="MAX"),
        *over("f16", shapes=((4, 8), (4, 8)), kind="cmp_lt"),
        *over("f32", shapes=((4, 8), ()), values=("any", "positive"), kind="div"),
    ),
)
