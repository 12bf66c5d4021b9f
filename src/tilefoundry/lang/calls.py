"""Calls: operations, sibling functions, meshes, instructions, compile-time Python."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from tilefoundry.diag import Refusal, Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.node import CALL, Node
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.decl import FuncDecl
from tilefoundry.lang.forms import Instr, InstrPath, MeshBinding, MeshForm, OpRef, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.ops import find, names

Evaluate = Callable[[Frame, ast.expr], Any]


def call(frame: Frame, node: ast.Call, evaluate: Evaluate) -> Any:
    """The value of a call, by what is called."""
    span = frame.span(node)
    callee = evaluate(frame, node.func)
    args: list[Any] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            args += evaluate(frame, arg.value)
        else:
            args.append(evaluate(frame, arg))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        if keyword.arg is None:
            kwargs |= value
        else:
            kwargs[keyword.arg] = value
    if isinstance(callee, OpRef):
        return operation(frame, span, callee.name, args, kwargs)
    if isinstance(callee, FuncDecl):
        return _function(frame, span, callee, args, kwargs)
    if isinstance(callee, InstrPath):
        return callee(*args, **kwargs)
    if callee is MeshForm:
        return _mesh_form(span, args, kwargs)
    return _python(frame, node, span, callee, args, kwargs)


def operation(frame: Frame, span: Span, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``tf.name(...)``; ``shape_of`` and ``rank`` are answered at once."""
    if name in ("shape_of", "rank"):
        if len(args) != 1 or kwargs or not isinstance(args[0], Node):
            problem = "it takes one tensor"
            refuse("op-arguments", span, op=f"tf.{name}", takes="(x)", problem=problem)
        type = args[0].tensor
        return type.shape if name == "shape_of" else type.rank
    if name == "tile":
        refuse("tile-outside-for", span)
    op = find(name)
    if op is None:
        import difflib

        near = difflib.get_close_matches(name, sorted(names()), 3)
        refuse("op-unknown", span, name=f"tf.{name}", near=" ".join(near) or "tilefoundry spec")
    if name == "schedule" and args and isinstance(args[0], Node):
        refuse("schedule-tuple", span)
    for item in (*args, *kwargs.values()):
        if isinstance(item, Instr) and name != "schedule":
            refuse("op-operand", span, op=f"tf.{name}", position="", found=item)
    return frame.builder.apply(op, args, kwargs, span)


def _mesh_form(span: Span, args: list[Any], kwargs: dict[str, Any]) -> MeshForm:
    try:
        return MeshForm(*args, **kwargs)
    except TypeError:
        refuse("mesh-form", span, found="these arguments")


def _function(
    frame: Frame, span: Span, callee: FuncDecl, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """A call of a sibling: a real boundary; weights are bound by name, not passed."""
    func = frame.signature_of(callee, span)
    open_params = [p for p in func.params if p.name not in func.weights]
    given: dict[str, Any] = {}
    for param, arg in zip(open_params, args, strict=False):
        given[param.name] = arg
    takes = ", ".join(p.name for p in open_params)
    if len(args) > len(open_params):
        problem = f"{len(args) - len(open_params)} too many"
        refuse("op-arguments", span, op=callee.name, takes=f"({takes})", problem=problem)
    known = {p.name for p in func.params}
    for name, value in kwargs.items():
        if name not in known or name in given:
            problem = f"{name} is {'given twice' if name in given else 'not a parameter'}"
            refuse("op-arguments", span, op=callee.name, takes=f"({takes})", problem=problem)
        given[name] = value
    nodes: list[Node] = []
    names: list[str] = []
    dims: dict[ix.Sym, ix.Dim] = {}
    for param in func.params:
        if param.name not in given:
            if param.name in func.weights:
                continue
            problem = f"{param.name} is missing"
            refuse("op-arguments", span, op=callee.name, takes=f"({takes})", problem=problem)
        value = given[param.name]
        if not isinstance(value, Node):
            found = repr(value)
            refuse("op-operand", span, op=callee.name, position=param.name, found=found)
        _fits(span, callee.name, param, value, dims)
        nodes.append(value)
        names.append(param.name)
    result = bind_dims(func.result, dims)
    attrs = {"func": func.name, "names": tuple(names)}
    return frame.builder.items(frame.builder.node(CALL, nodes, attrs, result, span))


def _fits(span: Span, callee: str, param: Node, value: Node, dims: dict[ix.Sym, ix.Dim]) -> None:
    """The argument's shape and dtype are the parameter's; open extents are bound."""
    want, got = param.tensor, value.tensor
    shapes = len(want.shape) == len(got.shape) and got.dtype == want.dtype
    if shapes:
        for mine, theirs in zip(want.shape, got.shape, strict=True):
            bare = _bare(mine)
            if bare is not None and bare not in dims:
                dims[bare] = theirs
            shapes = shapes and ix.substitute(mine, dims) == theirs
    if not shapes:
        refuse("call-type", span, func=callee, param=param.name, want=want, got=got)


def _bare(extent: ix.Dim) -> ix.Sym | None:
    if isinstance(extent, Expr) and len(extent.terms) == 1:
        (mono, coef) = extent.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], ix.OpenDim):
            return mono[0]
    return None


def bind_dims(result: Any, dims: dict[ix.Sym, ix.Dim]) -> Any:
    """A type with open extents replaced."""
    from tilefoundry.ir.types import TupleType

    if isinstance(result, TupleType):
        return TupleType(tuple(bind_dims(t, dims) for t in result.items))
    assert isinstance(result, TensorType)
    return result.with_(shape=tuple(ix.substitute(e, dims) for e in result.shape))


def _python(
    frame: Frame, node: ast.AST, span: Span, callee: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """An ordinary Python call on compile-time values."""
    from tilefoundry.lang.express import compute

    values = [*args, *kwargs.values()]
    if any(isinstance(v, (Node, MeshBinding, Window)) for v in _leaves(values)):
        if callee is builtins.len and isinstance(args[0], (tuple, list)):
            return len(args[0])
        if callee in (builtins.tuple, builtins.list, builtins.enumerate, builtins.zip,
                      builtins.reversed):  # fmt: skip
            made = callee(*args, **kwargs)
            return made if isinstance(made, (tuple, list)) else tuple(made)
        shown = getattr(callee, "__name__", repr(callee))
        refuse("call-unknown", span, name=shown)
    if callee in (builtins.min, builtins.max) and any(isinstance(v, Expr) for v in values):
        pick = ix.minimum if callee is builtins.min else ix.maximum
        return compute(frame, node, pick, *args)
    if not callable(callee):
        refuse("call-unknown", span, name=repr(callee))
    try:
        return callee(*args, **kwargs)
    except Refusal as refusal:
        from tilefoundry.lang.express import _placed

        raise _placed(refusal, span) from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        refuse("constant-failed", span, why=f"{type(error).__name__}: {error}")


def _leaves(values: Any) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if isinstance(value, (tuple, list)):
            out += _leaves(value)
        elif isinstance(value, dict):
            out += _leaves(value.values())
        else:
            out.append(value)
    return out
