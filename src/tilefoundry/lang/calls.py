"""Calls: operations, sibling functions, meshes, instructions, compile-time Python."""

from __future__ import annotations

import ast
import builtins
from types import BuiltinFunctionType, FunctionType, WrapperDescriptorType
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Expr
from tilefoundry.ir.node import CALL, Node
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.decl import FuncDecl
from tilefoundry.lang.elsewhere import instead
from tilefoundry.lang.forms import Instr, InstrPath, MeshBinding, MeshForm, OpRef, Tensor, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import Evaluate, compute, spell, spread
from tilefoundry.lang.record import shard_record
from tilefoundry.lang.typing import record_layout, tensor_type
from tilefoundry.ops import find


def call(frame: Frame, node: ast.Call, evaluate: Evaluate) -> Any:
    """The value of a call, by what is called."""
    span = frame.span(node)
    callee = evaluate(frame, node.func)
    args = [_typed(frame, span, a) for a in spread(frame, node.args, evaluate)]
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = _typed(frame, span, evaluate(frame, keyword.value))
        more = value if keyword.arg is None else {keyword.arg: value}
        if not isinstance(more, dict) or not all(isinstance(k, str) for k in more):
            refuse("call-keywords", span, problem=f"** of {spell(value)}")
        if twice := sorted(set(more) & set(kwargs)):
            refuse("call-keywords", span, problem=f"{' '.join(twice)} given twice")
        kwargs |= more
    if isinstance(callee, OpRef):
        return operation(frame, span, callee.name, args, kwargs)
    if isinstance(callee, FuncDecl):
        return _function(frame, span, callee, args, kwargs)
    if isinstance(callee, InstrPath):
        return callee(*args, **kwargs)
    if callee is shard_record:
        made = compute(frame, node, lambda: shard_record(*args, **kwargs))
        return record_layout(made, span)
    if callee is MeshForm:
        return _mesh_form(span, args, kwargs)
    return _python(frame, node, span, callee, args, kwargs)


def _typed(frame: Frame, span: Span, value: Any) -> Any:
    """A type or record written out, ``Tensor[...]`` or ``ShardLayout(...)``, as what it states."""
    if isinstance(value, Tensor):
        return tensor_type(value, span, frame.builder.context.storages)
    return record_layout(value, span)


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
        refuse("op-unknown", span, name=f"tf.{name}", instead=instead(name))
    if name == "schedule" and args and isinstance(args[0], Node):
        refuse("schedule-tuple", span)
    for position, item in [*enumerate(args), *kwargs.items()]:
        if isinstance(item, Instr) and name != "schedule":
            refuse("op-operand", span, op=f"tf.{name}", position=position, found=item)
    return frame.builder.apply(op, args, kwargs, span)


def _mesh_form(span: Span, args: list[Any], kwargs: dict[str, Any]) -> MeshForm:
    try:
        return MeshForm(*args, **kwargs)
    except Exception as error:  # iterating over what the author gave as names
        refuse("mesh-form", span, found=str(error).removeprefix("MeshForm.__init__() "))


def _function(
    frame: Frame, span: Span, callee: FuncDecl, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """A call of a sibling: a real boundary; weights are bound by name, not passed."""
    if callee not in frame.siblings.values():
        known = " ".join(frame.siblings)
        refuse("call-outside-module", span, func=callee.name, known=known)
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
            found = spell(value)
            refuse("op-operand", span, op=callee.name, position=param.name, found=found)
        _fits(span, callee.name, param, value, dims)
        frame.builder.whole(callee.name, param.name, value, span)
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
                least, most = ix.bounds(theirs)
                if most < bare.lo or least > bare.hi:
                    refuse("dim-range", span, name=bare.name, value=theirs, lo=bare.lo, hi=bare.hi)
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
    values = [*args, *kwargs.values()]
    if callee is builtins.range and any(isinstance(v, (Node, Expr)) for v in values):
        refuse("range-outside-for", span)
    if any(isinstance(v, (Node, MeshBinding, Window)) for v in _leaves(values)):
        sequences = all(isinstance(a, (tuple, list, int)) for a in args)
        if sequences and any(callee is known for known in ON_SEQUENCES):
            made = compute(frame, node, lambda: callee(*args, **kwargs))
            return made if isinstance(made, (tuple, list, int)) else tuple(made)
        name = callee.__name__ if isinstance(callee, PYTHON) else spell(callee)
        words = _for_call(frame, callee, name)
        if callee is builtins.sum and args and isinstance(args[0], (tuple, list)):
            words = "the tensors with + between them, as a + b + c"
        refuse("call-unknown", span, name=name, instead=words)
    if callee in (builtins.min, builtins.max) and any(isinstance(v, Expr) for v in values):
        pick = ix.minimum if callee is builtins.min else ix.maximum
        return compute(frame, node, pick, *args)
    if not callable(callee):
        name = spell(callee)
        refuse("call-unknown", span, name=name, instead="the name of an operation or function")
    if kwargs:
        return compute(frame, node, lambda: callee(*args, **kwargs))
    return compute(frame, node, callee, *args)


def _for_call(frame: Frame, callee: Any, name: str) -> str:
    """What to write for a Python function that was given a tensor."""
    if isinstance(callee, FunctionType) and callee.__code__.co_filename == frame.file:
        return f"{name} as a function of the module, with @func, or its operations here"
    return instead(name)


PYTHON = (type, FunctionType, BuiltinFunctionType, WrapperDescriptorType)
"""What has a name of its own that may be asked for."""

ON_SEQUENCES = (len, tuple, list, enumerate, zip, reversed)
"""Python's functions that take a sequence of tensors as they take any sequence."""


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
