"""What emitters of languages like C say alike: operations on elements, terms of reductions,
and which statement is written by whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.emit.writer import Writer
from tilefoundry.ir.dtype import DType, promote
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.program import Advance, For, Issue, Stmt, Sync, When, With

INFIX = {"add": "+", "sub": "-", "mul": "*"}
COMPARE = {
    "cmp_eq": "==", "cmp_ne": "!=", "cmp_lt": "<", "cmp_le": "<=", "cmp_gt": ">", "cmp_ge": ">=",
}  # fmt: skip
CALLS = frozenset([
    "minimum", "maximum", "fmin", "fmax", "floor_div", "pow", "abs", "rsqrt", "sqrt", "exp",
    "exp2", "log", "log2", "ceil", "floor", "fma", "sigmoid", "silu", "softplus", "tanh", "erf",
    "sin", "cos",
])  # fmt: skip
"""Operations that are functions of the same name in a family's header."""
SPELLED = {"mod": "remainder", "round": "rint"}


@dataclass(frozen=True)
class Language:
    """How a family's C says operations.

    ``call`` writes a function of the header on arguments computed as a type, ``zero`` a zero of
    one, ``wide`` names the type that values of an element type are computed in. ``truth`` is
    the type of truth values, ``either`` and ``both`` join two of them. ``divide`` is the
    header's function of a quotient; empty: the sign.
    """

    call: Callable[[str, str, Sequence[str]], str]
    zero: Callable[[str], str]
    wide: Callable[[DType], str]
    truth: str
    either: str
    both: str
    divide: str = ""

    def expression(
        self, op: str, args: Sequence[str], have: str, attrs: Mapping[str, Any]
    ) -> str | None:
        """``op`` on values computed as ``have``; None for an operation that has no words."""
        if op in INFIX:
            return f"{args[0]} {INFIX[op]} {args[1]}"
        match op:
            case "div" if self.divide:
                return self.call(self.divide, have, args)
            case "div":
                return f"{args[0]} / {args[1]}"
            case "neg":
                return f"-({args[0]})"
            case "square":
                return f"{args[0]} * {args[0]}"
            case "relu":
                return self.call("maximum", have, [args[0], self.zero(have)])
            case "gelu":
                word = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
                return self.call(word, have, args)
        if op in CALLS or op in SPELLED:
            return self.call(SPELLED.get(op, op), have, args)
        return None

    def operands(self, op: str, dtypes: Sequence[DType], result: DType) -> str:
        """The type that operands of ``dtypes`` are computed in."""
        dtype = dtypes[0]
        for other in dtypes[1:]:
            dtype = promote(dtype, other) or result
        return "f32" if op == "div" and not dtype.is_float else self.wide(dtype)

    def joined(self, kind: str, a: str, b: str, have: str = "") -> str:
        """Two terms of a reduction as one; where functions are overloaded their type is not
        asked for."""
        match kind:
            case "sum" | "mean":
                return f"{a} + {b}"
            case "prod":
                return f"{a} * {b}"
            case "any" | "all":
                return f"({a} {self.either if kind == 'any' else self.both} {b})"
        return self.call("minimum" if kind == "min" else "maximum", have, [a, b])

    def accumulator(self, kind: str, source: DType, result: DType) -> str:
        """The type that terms are combined in."""
        if kind in ("any", "all"):
            return self.truth
        if kind in ("sum", "mean", "prod") and not source.is_float:
            return self.wide(result)
        return self.wide(source)


class Statements:
    """Writes statements, each by the method for its kind."""

    out: Writer
    names: dict[object, str]
    now: Issue | None = None
    """The issue that is being written."""

    def statement(self, stmt: Stmt, mesh: Mesh) -> None:
        with self.out.at(getattr(stmt, "span", None)):
            match stmt:
                case With():
                    self.scope(stmt, mesh)
                case For():
                    self.counted(stmt, mesh)
                case When():
                    with self.out.block(f"if ({self.dim(stmt.test)} > 0)"):
                        self.body(stmt.body, mesh)
                case Advance():
                    self.out.line(f"{self.names[stmt.counter]} += {self.dim(stmt.by)};")
                case Sync():
                    self.sync(stmt, mesh)
                case Issue():
                    self.now = stmt
                    self.issue(stmt, mesh)

    def body(self, stmts: tuple[Stmt, ...], mesh: Mesh) -> None:
        raise NotImplementedError

    def scope(self, stmt: With, mesh: Mesh) -> None:
        raise NotImplementedError

    def counted(self, stmt: For, mesh: Mesh) -> None:
        raise NotImplementedError

    def sync(self, stmt: Sync, mesh: Mesh) -> None:
        raise NotImplementedError

    def issue(self, stmt: Issue, mesh: Mesh) -> None:
        raise NotImplementedError

    def dim(self, x: Dim) -> str:
        raise NotImplementedError


__all__ = ["COMPARE", "Language", "Statements"]
