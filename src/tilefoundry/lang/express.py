"""Expressions: compile-time Python values, index arithmetic, and tensor operations."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.diag import Refusal, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import B, P, ShardLayout
from tilefoundry.ir.spec import Split, Tag, Tagged, layout_from
from tilefoundry.lang.calls import call
from tilefoundry.lang.elsewhere import attribute, instead
from tilefoundry.lang.forms import MeshBinding, OpRef, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import (
    compute,
    construct,
    outside,
    placed,
    several,
    spell,
    spread,
)
from tilefoundry.lang.subscript import subscript
from tilefoundry.layout import Swizzle
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
            return tuple(spread(frame, items, evaluate))
        case ast.List(items):
            return spread(frame, items, evaluate)
        case ast.Set(items):
            return _tags(frame, node, spread(frame, items, evaluate))
        case ast.Dict(keys, values):
            return _dict(frame, node, keys, values)
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
            return _comprehension(frame, elt, generators)
        case ast.GeneratorExp(elt, generators):
            return tuple(_comprehension(frame, elt, generators))
        case _:
            outside(frame.span(node), construct(node))


def written_type(frame: Frame, node: ast.expr) -> Any:
    """The value of an annotation; what stands in quotes is read as Python reads it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            refuse("param-type", frame.span(node), name=repr(node.value))
        for part in ast.walk(inner):
            ast.copy_location(part, node)
        node = inner
    return evaluate(frame, node)


def _dict(
    frame: Frame, node: ast.expr, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]
) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for key, item in zip(keys, values, strict=True):
        value = evaluate(frame, item)
        if key is None:
            compute(frame, item, out.update, value)
        else:
            compute(frame, key, out.__setitem__, evaluate(frame, key), value)
    return out


def _text(frame: Frame, node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        spec = _text(frame, node.format_spec) if node.format_spec is not None else ""
        value = evaluate(frame, node.value)
        shown = {ord("r"): repr, ord("s"): str, ord("a"): ascii}.get(node.conversion)
        return compute(frame, node, format, shown(value) if shown else value, spec)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(frame, v) for v in node.values)
    return str(evaluate(frame, node))


def _comprehension(
    frame: Frame, elt: ast.expr, generators: Sequence[ast.comprehension]
) -> list[Any]:
    """Its values, in order; the names that it binds end with it."""
    from tilefoundry.lang.statements import assign

    first, *rest = generators
    kept = {**frame.names}
    out: list[Any] = []
    for value in several(frame, first.iter, evaluate(frame, first.iter)):
        assign(frame, first.target, value)
        if all(truth(frame, test) for test in first.ifs):
            out += _comprehension(frame, elt, rest) if rest else [evaluate(frame, elt)]
    frame.names = kept
    return out


def truth(frame: Frame, node: ast.expr) -> bool:
    """A condition known at compile time; refuses one that is not."""
    return _true(frame, node, evaluate(frame, node), CHOOSE)


CHOOSE = ("choose element by element with tf.where(condition, a, b), or specialise the function "
          "for ranges of an extent")  # fmt: skip


def _true(frame: Frame, node: ast.expr, value: Any, instead: str) -> bool:
    """The truth of ``value``; ``instead`` is what to write where it is a tensor."""
    if isinstance(value, Node):
        refuse("condition-runtime", frame.span(node), found=value.type, fix=instead)
    if isinstance(value, Expr):
        lo, hi = ix.bounds(value)
        if lo > 0 or hi < 0:
            return True
        refuse("condition-index", frame.span(node), found=value)
    return compute(frame, node, bool, value)


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
        refuse("tensor-attribute", span, name=name, instead=instead(name, method=True))
    if isinstance(base, OpRef):  # tf.nn.relu
        refuse("op-unknown", span, name=f"tf.{base.name}.{name}", instead=instead(name))
    if isinstance(base, Window) and name in ("start", "stop", "size"):
        return base.start + base.size if name == "stop" else getattr(base, name)
    try:
        return getattr(base, name)
    except AttributeError:
        refuse("attribute-unknown", span, name=name, of=spell(base), near=attribute(base, name))
    except Refusal as refusal:
        raise placed(refusal, span) from None
    except (Exception, SystemExit) as error:  # a property of the author's own
        refuse("constant-failed", span, why=f"{type(error).__name__}: {error}")


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


def _at(frame: Frame, node: ast.AST, left: Any, right: Any) -> Any:
    """``extent @ axis``, ``axis @ P("sum")``, ``layout @ {...}``."""
    span = frame.span(node)
    axis = axis_of(right)
    if axis is not None and isinstance(left, (int, Expr)) and not isinstance(left, bool):
        return Split(left, axis)
    if axis_of(left) is not None and isinstance(right, (B, P)):
        return Tag(axis_of(left), right)
    if isinstance(right, frozenset):
        return Tagged(left, tuple(sorted(right, key=repr)))  # a set has no order of its own
    refuse("at-operands", span, left=spell(left), right=spell(right))


def axis_of(value: Any) -> Any:
    """The mesh axis whose coordinate ``value`` is, None if it is something else."""
    if not isinstance(value, Expr) or len(value.terms) != 1:
        return None
    (mono, coef) = value.terms[0]
    if coef == 1 and len(mono) == 1 and isinstance(mono[0], Coord):
        return mono[0].axis
    return None


def _tags(frame: Frame, node: ast.AST, items: Sequence[Any]) -> frozenset[Tag]:
    """``{B(), axis @ P("sum")}``; the only sets of the language."""
    out: list[Tag] = []
    for item in items:
        if isinstance(item, B):
            out.append(Tag(None, item))
        elif isinstance(item, Tag):
            out.append(item)
        else:
            refuse("layout-tags", frame.span(node), found=spell(item))
    return frozenset(out)


def _compose(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
    """``layout + offset`` and ``layout | Swizzle(...)`` on tuple and sharded forms."""
    span = frame.span(node)
    if isinstance(left, tuple) and isinstance(op, ast.Mult) and isinstance(right, int):
        return left * right
    if isinstance(left, (tuple, Tagged, ShardLayout)):
        if isinstance(op, ast.BitOr) and isinstance(right, Swizzle):
            return replace(layout_from(left, span), swizzle=right)
        if isinstance(op, ast.Add) and type(right) is int and right >= 0:
            base = layout_from(left, span)
            return replace(base, offset=base.offset + right)
    refuse("layout-operator", span, left=spell(left), right=spell(right))


def _move(frame: Frame, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Window:
    """A window moved by a compile-time offset."""
    if isinstance(op, ast.Add) and isinstance(right, Window):
        left, right = right, left
    if isinstance(left, Window) and isinstance(right, (int, Expr)):
        if isinstance(op, ast.Add):
            return Window(left.start + right, left.size)
        if isinstance(op, ast.Sub):
            return Window(left.start - right, left.size)
    refuse("window-operator", frame.span(node), left=spell(left), right=spell(right))


def _unary(frame: Frame, node: ast.AST, op: ast.unaryop, value: Any) -> Any:
    if isinstance(value, Node):
        if isinstance(op, ast.UAdd):
            return value
        if isinstance(op, ast.Not):
            refuse("condition-runtime", frame.span(node), found=value.type,
                   fix="write ~x, which is of each element of a bool tensor x")  # fmt: skip
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
    if isinstance(value, Window):
        sign = {ast.USub: "-", ast.UAdd: "+", ast.Not: "not", ast.Invert: "~"}[type(op)]
        refuse("window-operator", frame.span(node), left=sign, right=spell(value))
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
        absent = len(ops) == 1 and any(v is None for v in values)
        if absent and isinstance(ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            return isinstance(ops[0], (ast.IsNot, ast.NotEq))
        if len(ops) > 1 or type(ops[0]) not in COMPARE:
            refuse("compare-chained", span)
        found = find(COMPARE[type(ops[0])][0])
        assert found is not None
        return frame.builder.apply(found, values, {}, span)
    for n, value in enumerate(values):
        if isinstance(value, Window):
            others = " and ".join(spell(v) for v in values[:n] + values[n + 1 :])
            refuse("window-operator", span, left=spell(value), right=others)
    return all(_holds(frame, node, op, values[n], values[n + 1]) for n, op in enumerate(ops))


def _holds(frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    match op:
        case ast.Is():
            return left is right
        case ast.IsNot():
            return left is not right
        case ast.In() | ast.NotIn():
            return _inside(frame, node, left, right) == isinstance(op, ast.In)
    if isinstance(left, Expr) or isinstance(right, Expr):
        return _decide(frame, node, op, left, right)
    both = isinstance(left, (tuple, list)) and type(left) is type(right)
    if both and isinstance(op, (ast.Eq, ast.NotEq)):
        return _same(frame, node, left, right) == isinstance(op, ast.Eq)
    return bool(compute(frame, node, COMPARE[type(op)][1], left, right))


def _inside(frame: Frame, node: ast.AST, left: Any, right: Any) -> bool:
    """``left in right``; an index expression is compared where its bounds decide it."""
    if isinstance(right, (str, bytes, dict, set, frozenset)) and not isinstance(left, Expr):
        return compute(frame, node, operator.contains, right, left)
    items = several(frame, node, right)
    return any(_holds(frame, node, ast.Eq(), item, left) for item in items)


def _same(frame: Frame, node: ast.AST, left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Equality of sequences, such as shapes, item by item."""
    return len(left) == len(right) and all(
        _holds(frame, node, ast.Eq(), a, b) for a, b in zip(left, right, strict=True)
    )


def _decide(frame: Frame, node: ast.AST, op: ast.cmpop, left: Any, right: Any) -> bool:
    """Comparison of index expressions: only where bounds decide it."""
    if not isinstance(left, (int, Expr)) or not isinstance(right, (int, Expr)):
        number = isinstance(left, float) or isinstance(right, float)
        if number or not isinstance(op, (ast.Eq, ast.NotEq)):
            found = f"{spell(left)} against {spell(right)}"
            refuse("condition-index", frame.span(node), found=found)
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
    """The first value that decides, as in Python, else the last; others are not evaluated."""
    decides = isinstance(op, ast.Or)
    sign = "|" if decides else "&"
    instead = f"write (a) {sign} (b), which is of each element of bool tensors"
    for node in values[:-1]:
        value = evaluate(frame, node)
        if _true(frame, node, value, instead) == decides:
            return value
    return evaluate(frame, values[-1])
