"""Expressions: compile-time Python values, index arithmetic, and tensor operations."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tilefoundry.diag import Refusal, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import B, P, ShardLayout
from tilefoundry.ir.spec import Split, Tag, Tagged, layout_from
from tilefoundry.lang.calls import call
from tilefoundry.lang.forms import ConstTensor, MeshBinding, Tensor, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.subscript import subscript
from tilefoundry.layout import Layout
from tilefoundry.ops import find

BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.FloorDiv: ("floor_div", operator.floordiv),
    ast.Mod: ("mod", operator.mod),
    ast.Pow: ("pow", operator.pow),
    ast.BitAnd: ("logical_and", operator.and_),
    ast.BitOr: ("logical_or", operator.or_),
    ast.MatMult: ("matmul", operator.matmul),
    ast.LShift: ("", operator.lshift),
    ast.RShift: ("", operator.rshift),
    ast.BitXor: ("", operator.xor),
}
COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("cmp_eq", operator.eq),
    ast.NotEq: ("cmp_ne", operator.ne),
    ast.Lt: ("cmp_lt", operator.lt),
    ast.LtE: ("cmp_le", operator.le),
    ast.Gt: ("cmp_gt", operator.gt),
    ast.GtE: ("cmp_ge", operator.ge),
}


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression; tensor operations are emitted on the way."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return frame.look_up(name, frame.span(node))
        case ast.Attribute(base, name):
            return _attribute(frame, node, evaluate(frame, base), name)
        case ast.BinOp():
            return _binary_chain(frame, node)
        case ast.UnaryOp(op, operand):
            return _unary(frame, node, op, evaluate(frame, operand))
        case ast.Compare(left, ops, comparators):
            return _compare(frame, node, left, ops, comparators)
        case ast.BoolOp(op, values):
            return _bool(frame, node, op, values)
        case ast.IfExp(test, body, orelse):
            return evaluate(frame, body if truth(frame, test) else orelse)
        case ast.Tuple(items):
            return tuple(_spread(frame, items))
        case ast.List(items):
            return list(_spread(frame, items))
        case ast.Set(items):
            return _tags(frame, node, _spread(frame, items))
        case ast.Dict(keys, values):
            pairs = zip(keys, values, strict=True)
            return {evaluate(frame, k): evaluate(frame, v) for k, v in pairs if k is not None}
        case ast.Subscript(base, index):
            return subscript(frame, node, evaluate(frame, base), index, evaluate)
        case ast.Slice(lower, upper, step):
            parts = [None if p is None else evaluate(frame, p) for p in (lower, upper, step)]
            return slice(*parts)
        case ast.Call():
            return call(frame, node, evaluate)
        case ast.JoinedStr(values):
            return "".join(_text(frame, v) for v in values)
        case ast.ListComp(elt, generators):
            return list(_comprehension(frame, elt, generators))
        case ast.GeneratorExp(elt, generators):
            return tuple(_comprehension(frame, elt, generators))
        case _:
            refuse("syntax-unsupported", frame.span(node), what=type(node).__name__)


def _spread(frame: Frame, items: Sequence[ast.expr]) -> list[Any]:
    out: list[Any] = []
    for item in items:
        if isinstance(item, ast.Starred):
            out += evaluate(frame, item.value)
        else:
            out.append(evaluate(frame, item))
    return out


def _text(frame: Frame, node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        spec = _text(frame, node.format_spec) if node.format_spec is not None else ""
        return format(evaluate(frame, node.value), spec)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(frame, v) for v in node.values)
    return str(evaluate(frame, node))


def _comprehension(
    frame: Frame, elt: ast.expr, generators: Sequence[ast.comprehension]
) -> list[Any]:
    if len(generators) != 1 or not isinstance(generators[0].target, ast.Name):
        refuse("syntax-unsupported", frame.span(elt), what="a nested comprehension")
    (generator,) = generators
    name = generator.target.id  # type: ignore[union-attr]
    kept = {**frame.names}
    out: list[Any] = []
    for value in evaluate(frame, generator.iter):
        frame.names[name] = value
        if all(truth(frame, test) for test in generator.ifs):
            out.append(evaluate(frame, elt))
    frame.names = kept
    return out


def truth(frame: Frame, node: ast.expr) -> bool:
    """A condition known at compile time; refuses one that is not."""
    value = evaluate(frame, node)
    if isinstance(value, Node):
        refuse("condition-runtime", frame.span(node), found=value.type)
    if isinstance(value, Expr):
        lo, hi = ix.bounds(value)
        if lo > 0 or hi < 0:
            return True
        refuse("condition-index", frame.span(node), found=value)
    return bool(value)


def _attribute(frame: Frame, node: ast.Attribute, base: Any, name: str) -> Any:
    span = frame.span(node)
    if isinstance(base, MeshBinding):
        found = base.mesh.coordinate(name, base.spelled)
        if found is None:
            axes = " ".join(a.name for a in base.mesh.axes)
            refuse("mesh-axis-unknown", span, name=name, mesh=base.spelled, axes=axes)
        return found
    if isinstance(base, Node):
        if name in ("shape", "dtype", "storage", "rank"):
            value = getattr(base.tensor, name)
            return value.name if name == "dtype" else value
        refuse("tensor-attribute", span, name=name)
    if isinstance(base, Window) and name in ("start", "stop", "size"):
        return base.start + base.size if name == "stop" else getattr(base, name)
    try:
        return getattr(base, name)
    except AttributeError:
        refuse("attribute-unknown", span, name=name, of=_spell(base))
    except Refusal as refusal:
        raise _placed(refusal, span) from None


def _placed(refusal: Refusal, span: Any) -> Refusal:
    from dataclasses import replace

    return Refusal(*(d if d.span else replace(d, span=span) for d in refusal.diags))


def _spell(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _binary_chain(frame: Frame, node: ast.BinOp) -> Any:
    """Left-nested chains are unrolled, so a sum of 1,000 terms needs no deep stack."""
    chain: list[ast.BinOp] = [node]
    while isinstance(chain[-1].left, ast.BinOp):
        chain.append(chain[-1].left)
    value = evaluate(frame, chain[-1].left)
    for step in reversed(chain):
        value = binary(frame, step, step.op, value, evaluate(frame, step.right))
    return value


def binary(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """One binary operator on already evaluated sides."""
    span = frame.span(node)
    name, python = BINARY[type(op)]
    if isinstance(left, Node) or isinstance(right, Node):
        found = find(name) if name else None
        if found is None:
            refuse("operator-unsupported", span, operator=type(op).__name__)
        if isinstance(op, (ast.BitAnd, ast.BitOr)):
            _truth_values(frame, node, left, right)
        return frame.builder.apply(found, (left, right), {}, span)
    if isinstance(op, ast.MatMult):
        return _at(frame, node, left, right)
    if isinstance(left, (Tagged, ShardLayout)) or isinstance(right, ShardLayout):
        return _compose(frame, node, op, left, right)
    if isinstance(left, tuple) and not isinstance(right, tuple | list):
        return _compose(frame, node, op, left, right)
    if isinstance(left, Window) or isinstance(right, Window):
        return _move(frame, node, op, left, right)
    return compute(frame, node, python, left, right)


def _truth_values(frame: Frame, node: ast.AST, *sides: Any) -> None:
    for side in sides:
        if isinstance(side, Node) and side.tensor.dtype.kind != "bool":
            refuse("operator-bits", frame.span(node), dtype=side.tensor.dtype)


def compute(frame: Frame, node: ast.AST, python: Callable[..., Any], *args: Any) -> Any:
    """A Python operation on compile-time values; its failure is the author's."""
    try:
        return python(*args)
    except Refusal as refusal:
        raise _placed(refusal, frame.span(node)) from None
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        if any(isinstance(a, Expr) for a in args):
            what = getattr(python, "__name__", "operator")
            shown = " and ".join(_spell(a) for a in args)
            refuse("index-operation", frame.span(node), what=what, args=shown)
        refuse("constant-failed", frame.span(node), why=f"{type(error).__name__}: {error}")


def _at(frame: Frame, node: ast.AST, left: Any, right: Any) -> Any:
    """``extent @ axis``, ``axis @ P("sum")``, ``layout @ {...}``."""
    span = frame.span(node)
    axis = axis_of(right)
    if axis is not None and isinstance(left, (int, Expr)) and not isinstance(left, bool):
        return Split(left, axis)
    if axis_of(left) is not None and isinstance(right, (B, P)):
        return Tag(axis_of(left), right)
    if isinstance(right, frozenset):
        return Tagged(left, tuple(right))
    refuse("at-operands", span, left=_spell(left), right=_spell(right))


def axis_of(value: Any) -> Any:
    """The mesh axis whose coordinate ``value`` is, None if it is something else."""
    if not isinstance(value, Expr) or len(value.terms) != 1:
        return None
    (mono, coef) = value.terms[0]
    if coef == 1 and len(mono) == 1 and isinstance(mono[0], Coord):
        return mono[0].axis
    return None


def _tags(frame: Frame, node: ast.AST, items: Sequence[Any]) -> frozenset[Tag]:
    out: list[Tag] = []
    for item in items:
        if isinstance(item, B):
            out.append(Tag(None, item))
        elif isinstance(item, Tag):
            out.append(item)
        else:
            refuse("layout-tags", frame.span(node), found=_spell(item))
    return frozenset(out)


def _compose(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """``layout + offset`` and ``layout | Swizzle(...)`` on tuple and sharded forms."""
    from dataclasses import replace

    span = frame.span(node)
    if isinstance(left, tuple) and isinstance(op, ast.Mult) and isinstance(right, int):
        return left * right
    base = layout_from(left, span)
    if isinstance(op, ast.BitOr):
        return replace(base, swizzle=right)
    if isinstance(op, ast.Add) and isinstance(right, int):
        return replace(base, offset=base.offset + right)
    refuse("layout-operator", span, left=_spell(left), right=_spell(right))


def _move(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Window:
    """A window moved by a compile-time offset."""
    if isinstance(op, ast.Add) and isinstance(right, Window):
        left, right = right, left
    if isinstance(left, Window) and isinstance(right, (int, Expr)):
        if isinstance(op, ast.Add):
            return Window(_expr(left.start + right), left.size)
        if isinstance(op, ast.Sub):
            return Window(_expr(left.start - right), left.size)
    refuse("window-operator", frame.span(node), left=_spell(left), right=_spell(right))


def _expr(value: Dim) -> Any:
    return value


def _unary(frame: Frame, node: ast.AST, op: ast.unaryop, value: Any) -> Any:
    if isinstance(value, Node):
        if isinstance(op, ast.UAdd):
            return value
        if isinstance(op, ast.Not):
            refuse("condition-runtime", frame.span(node), found=value.type)
        if isinstance(op, ast.Invert):
            _truth_values(frame, node, value)
        found = find("neg" if isinstance(op, ast.USub) else "logical_not")
        assert found is not None
        return frame.builder.apply(found, (value,), {}, frame.span(node))
    table: dict[type[ast.unaryop], Callable[[Any], Any]] = {
        ast.USub: operator.neg,
        ast.UAdd: operator.pos,
        ast.Not: operator.not_,
        ast.Invert: operator.invert,
    }
    if isinstance(op, ast.UAdd) and isinstance(value, Expr):
        return value
    return compute(frame, node, table[type(op)], value)


def _compare(
    frame: Frame,
    node: ast.Compare,
    left: ast.expr,
    ops: Sequence[ast.cmpop],
    comparators: Sequence[ast.expr],
) -> Any:
    span = frame.span(node)
    values = [evaluate(frame, left), *(evaluate(frame, c) for c in comparators)]
    if any(isinstance(v, Node) for v in values):
        if len(ops) > 1 or type(ops[0]) not in COMPARE:
            refuse("compare-chained", span)
        if any(v is None for v in values):
            return isinstance(ops[0], ast.IsNot)
        found = find(COMPARE[type(ops[0])][0])
        assert found is not None
        return frame.builder.apply(found, values, {}, span)
    for n, op in enumerate(ops):
        if not _holds(frame, node, op, values[n], values[n + 1]):
            return False
    return True


def _holds(frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    match op:
        case ast.Is():
            return left is right
        case ast.IsNot():
            return left is not right
        case ast.In() | ast.NotIn():
            inside = compute(frame, node, operator.contains, right, left)
            return inside == isinstance(op, ast.In)
    if isinstance(left, Expr) or isinstance(right, Expr):
        return _decide(frame, node, op, left, right)
    return bool(compute(frame, node, COMPARE[type(op)][1], left, right))


def _decide(frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    """Comparison of index expressions: only where bounds decide it."""
    if not isinstance(left, (int, Expr)) or not isinstance(right, (int, Expr)):
        return isinstance(op, ast.NotEq)
    lo, hi = ix.bounds(left - right)
    answers: dict[type[ast.cmpop], tuple[bool, bool]] = {
        ast.Lt: (hi < 0, lo >= 0),
        ast.LtE: (hi <= 0, lo > 0),
        ast.Gt: (lo > 0, hi <= 0),
        ast.GtE: (lo >= 0, hi < 0),
        ast.Eq: (left == right, lo > 0 or hi < 0),
        ast.NotEq: (lo > 0 or hi < 0, left == right),
    }
    yes, no = answers[type(op)]
    if not yes and not no:
        refuse("condition-index", frame.span(node), found=f"{left} against {right}")
    return yes


def _bool(frame: Frame, node: ast.AST, op: ast.boolop, values: Sequence[ast.expr]) -> Any:
    want = isinstance(op, ast.Or)
    result = not want
    for value in values:
        result = truth(frame, value)
        if result == want:
            return result
    return result


def unsupported(frame: Frame, node: ast.AST, what: str) -> NoReturn:
    """Refuse a construct outside the language."""
    refuse("syntax-unsupported", frame.span(node), what=what)


__all__ = ["ConstTensor", "Layout", "Tensor", "axis_of", "binary", "compute", "evaluate", "truth"]
