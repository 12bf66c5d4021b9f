"""Instructions that each thread executes on its own registers (PTX ISA, integer, floating
point, comparison, selection and conversion instructions)."""

from __future__ import annotations

from tilefoundry.targets.contract.unit import UnitInstr

BINARY = (
    *("add", "sub", "mul", "div", "floor_div", "mod", "minimum", "maximum", "pow", "binary"),
    *("cmp_eq", "cmp_ne", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge", "logical_and", "logical_or"),
)
UNARY = (
    *("neg", "abs", "rsqrt", "sqrt", "square", "exp", "exp2", "log", "log2", "ceil", "floor"),
    *("round", "logical_not", "sigmoid", "silu", "tanh", "erf", "sin", "cos", "unary"),
)
SOURCE = "PTX ISA, instruction set"


def per_thread(path: str, ops: tuple[str, ...], rank: int) -> UnitInstr:
    return UnitInstr(path, ops, "thread", ("rmem",), rank, source=SOURCE)


CONTRACTS = (
    per_thread("binary", BINARY, 10),
    per_thread("unary", UNARY, 11),
    per_thread("cast", ("cast",), 12),
    per_thread("clamp", ("clamp",), 13),
    per_thread("where", ("where",), 14),
    per_thread("relu", ("relu",), 15),
    per_thread("reduce", ("reduce",), 16),
    per_thread("fill", ("zeros", "full_like"), 17),
)
