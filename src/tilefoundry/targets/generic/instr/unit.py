"""Instructions that each unit executes on its own registers."""

from __future__ import annotations

from tilefoundry.targets.contract.unit import UnitInstr

BINARY = (
    *("add", "sub", "mul", "div", "floor_div", "mod", "minimum", "maximum", "pow", "binary"),
    *("fmin", "fmax"),
    *("cmp_eq", "cmp_ne", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge", "logical_and", "logical_or"),
)
UNARY = (
    *("neg", "abs", "rsqrt", "sqrt", "square", "exp", "exp2", "log", "log2", "ceil", "floor"),
    *("round", "logical_not", "sigmoid", "silu", "softplus", "tanh", "erf", "sin", "cos"),
    *("gelu", "unary"),
)


def on_registers(path: str, meaning: str, ops: tuple[str, ...], rank: int) -> UnitInstr:
    return UnitInstr(path, meaning, ops, ("rmem",), rank)


CONTRACTS = (
    on_registers("binary", "binary", BINARY, 10),
    on_registers("unary", "unary", UNARY, 11),
    on_registers("cast", "cast", ("cast",), 12),
    on_registers("clamp", "clamp", ("clamp",), 13),
    on_registers("where", "where", ("where",), 14),
    on_registers("relu", "relu", ("relu",), 15),
    UnitInstr("reduce", "reduce", ("reduce",), ("rmem",), 16, combines=True, reads=("smem",)),
    on_registers("fill", "full_like", ("zeros", "full_like"), 17),
    on_registers("arange", "arange", ("arange",), 18),
    on_registers("fma", "fma", ("fma",), 19),
)
