"""Statements: assignment, loops, mesh scopes, return."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, LoopVar
from tilefoundry.ir.mesh import Mesh, arrange, enter, rearrange
from tilefoundry.ir.node import Node, Return
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.build import LoopDraft
from tilefoundry.lang.express import binary, evaluate, truth
from tilefoundry.lang.forms import Dropped, MeshBinding, MeshForm, OpRef, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.ops import find

MOST_UNROLLED = 10_000
"""Steps of a compile-time loop; more is a run-time loop written wrongly."""


def run(frame: Frame, body: Sequence[ast.stmt]) -> Return | None:
    """Parse statements in order; the ``return`` among them, if any."""
    for n, stmt in enumerate(body):
        found = _statement(frame, stmt)
        if found is not None:
            if n + 1 < len(body):
                refuse("return-not-last", frame.span(body[n + 1]))
            return found
    return None


def _statement(frame: Frame, stmt: ast.stmt) -> Return | None:
    match stmt:
        case ast.Assign(targets, value):
            made = evaluate(frame, value)
            for target in targets:
                assign(frame, target, made)
        case ast.AnnAssign(ast.Name() as target, annotation, value):
            _annotated(frame, target, annotation, value)
        case ast.AugAssign(ast.Name(name) as target, op, value):
            left = frame.look_up(name, frame.span(target))
            assign(frame, target, binary(frame, stmt, op, left, evaluate(frame, value)))
        case ast.Expr(ast.Constant()):
            pass  # a docstring, or the bare ``...``
        case ast.Expr(value):
            evaluate(frame, value)
        case ast.Pass():
            pass
        case ast.If(test, body, orelse):
            return run(frame, body if truth(frame, test) else orelse)
        case ast.While(test, body):
            return _while(frame, stmt, test, body)
        case ast.Assert(test, message):
            if not truth(frame, test):
                why = evaluate(frame, message) if message else ast.unparse(test)
                refuse("assert-failed", frame.span(stmt), why=why)
        case ast.For():
            return _for(frame, stmt)
        case ast.With(items, body):
            return _with(frame, stmt, items, body)
        case ast.Return(value):
            return _return(frame, stmt, value)
        case _:
            refuse("syntax-unsupported", frame.span(stmt), what=type(stmt).__name__)
    return None


def assign(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind a name, or a tuple of them."""
    span = frame.span(target)
    match target:
        case ast.Name(name):
            if isinstance(value, Node) and not value.name:
                object.__setattr__(value, "name", name)  # the author's name, learned late
            frame.names[name] = value
        case ast.Tuple(items) | ast.List(items):
            if not isinstance(value, (tuple, list)):
                refuse("unpack", span, want=len(items), got="one value")
            if len(value) != len(items):
                refuse("unpack", span, want=len(items), got=len(value))
            for item, part in zip(items, value, strict=True):
                assign(frame, item, part)
        case _:
            refuse("assign-target", span, what=ast.unparse(target))


def _annotated(
    frame: Frame, target: ast.Name, annotation: ast.expr, value: ast.expr | None
) -> None:
    if value is None:
        refuse("syntax-unsupported", frame.span(target), what="a declaration without a value")
    made = evaluate(frame, value)
    stated = evaluate(frame, annotation)
    if isinstance(made, Node) and isinstance(stated, TensorType) and made.type != stated:
        refuse("annotation-differs", frame.span(target), stated=stated, derived=made.type)
    assign(frame, target, made)


def _while(frame: Frame, stmt: ast.stmt, test: ast.expr, body: list[ast.stmt]) -> Return | None:
    steps = 0
    while truth(frame, test):
        found = run(frame, body)
        if found is not None:
            return found
        steps += 1
        if steps > MOST_UNROLLED:
            refuse("loop-unrolled", frame.span(stmt), most=MOST_UNROLLED)
    return None


def _return(frame: Frame, stmt: ast.stmt, value: ast.expr | None) -> Return:
    span = frame.span(stmt)
    made = evaluate(frame, value) if value is not None else None
    values: list[Node] = []
    for item in made if isinstance(made, (tuple, list)) else (made,):
        if not isinstance(item, Node):
            refuse("return-value", span, found=repr(item))
        values.append(item)
    out = Return(tuple(values), span)
    frame.builder.stmts.append(out)
    frame.builder.used.update(values)
    return out


# Loops


def _for(frame: Frame, stmt: ast.For) -> Return | None:
    span = frame.span(stmt)
    if stmt.orelse:
        refuse("syntax-unsupported", span, what="else of a for")
    head = stmt.iter
    if isinstance(head, ast.Call):
        callee = evaluate(frame, head.func)
        if callee is range:
            return _range_loop(frame, stmt, head)
        if isinstance(callee, OpRef) and callee.name == "tile":
            return _tile_loop(frame, stmt, head)
    items = evaluate(frame, head)
    if not isinstance(items, (tuple, list, range, dict, str)):
        found = items.type if isinstance(items, Node) else repr(items)
        refuse("loop-iterable", span, found=found)
    if len(items) > MOST_UNROLLED:
        refuse("loop-unrolled", span, most=MOST_UNROLLED)
    for item in items:
        assign(frame, stmt.target, item)
        if run(frame, stmt.body) is not None:
            refuse("return-in-loop", span)
    return None


def _loop_name(frame: Frame, stmt: ast.For) -> str:
    if not isinstance(stmt.target, ast.Name):
        refuse("assign-target", frame.span(stmt.target), what=ast.unparse(stmt.target))
    return stmt.target.id


def _range_loop(frame: Frame, stmt: ast.For, head: ast.Call) -> None:
    span = frame.span(stmt)
    parts = [evaluate(frame, a) for a in head.args]
    if head.keywords or not 1 <= len(parts) <= 3:
        refuse("loop-range", span, found=ast.unparse(head))
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, Expr)):
            found = part.type if isinstance(part, Node) else repr(part)
            refuse("loop-range", span, found=found)
    start, stop, step = (0, parts[0], 1) if len(parts) == 1 else (*parts[:2], *(parts[2:] or [1]))
    if ix.bounds(step)[0] < 1:
        refuse("loop-step", span, step=step)
    name = _loop_name(frame, stmt)
    _loop(frame, stmt, name, start, stop, step, None)


def _tile_loop(frame: Frame, stmt: ast.For, head: ast.Call) -> None:
    span = frame.span(stmt)
    values = [evaluate(frame, a) for a in head.args]
    named = {k.arg: evaluate(frame, k.value) for k in head.keywords}
    extent = values[0] if values else named.pop("extent", None)
    step = values[1] if len(values) > 1 else named.pop("step", None)
    for value in (extent, step):
        if isinstance(value, bool) or not isinstance(value, (int, Expr)):
            refuse("loop-range", span, found=ast.unparse(head))
    if named or len(values) > 2:
        refuse("loop-range", span, found=ast.unparse(head))
    assert isinstance(extent, (int, Expr)) and isinstance(step, (int, Expr))
    if ix.bounds(step)[0] < 1:
        refuse("loop-step", span, step=step)
    _loop(frame, stmt, _loop_name(frame, stmt), 0, extent, step, step)


def _variable(name: str, start: Dim, stop: Dim, step: Dim) -> LoopVar:
    lo = ix.bounds(start)[0]
    hi = ix.bounds(stop)[1] - 1
    unit = math.gcd(ix.multiple_of(start), ix.multiple_of(step)) or 1
    if hi != math.inf and unit > 1:
        hi = hi // unit * unit
    return LoopVar(name, lo, max(hi, lo), unit)


def _loop(
    frame: Frame,
    stmt: ast.For,
    name: str,
    start: Dim,
    stop: Dim,
    step: Dim,
    window: Dim | None,
) -> None:
    span = frame.span(stmt)
    builder = frame.builder
    var = _variable(name, start, stop, step)
    draft = LoopDraft(var, start, stop, step, window, span)
    assigned = list(dict.fromkeys(_assigned(stmt.body)))
    before = dict(frame.names)
    carried = {n: v for n in assigned if isinstance(v := before.get(n), Node)}
    heads = {n: builder.head(n, v) for n, v in carried.items()}
    frame.names.update(heads)
    for n in assigned:
        if n in before and n not in carried and not isinstance(before[n], Dropped):
            frame.names[n] = Dropped(f"it changes inside the loop on line {span.line}")
    builder.enter_loop(draft)
    here = var.expr()
    if window is None:
        frame.names[name] = here
    else:
        whole = isinstance(stop, (int, Expr)) and ix.mod(stop, window) == 0
        size = window if whole else ix.minimum(window, stop - here)
        frame.names[name] = Window(here, size)
    if run(frame, stmt.body) is not None:
        refuse("return-in-loop", span)
    builder.leave_loop()
    after = frame.names
    frame.names = dict(before)
    for n in assigned:
        frame.names[n] = _after_loop(frame, draft, n, carried, heads, after)
    frame.names[name] = Dropped(f"it is the variable of the loop on line {span.line}")


def _after_loop(
    frame: Frame,
    draft: LoopDraft,
    name: str,
    carried: dict[str, Node],
    heads: dict[str, Node],
    after: dict[str, Any],
) -> Any:
    """What a name that the body assigns stands for after the loop."""
    line = draft.span.line if draft.span else 0
    gone = Dropped(f"it is assigned inside the loop on line {line} only")
    if name not in carried:
        return gone
    init, head, step = carried[name], heads[name], after.get(name)
    if not isinstance(step, Node):
        return gone
    if step is head:
        return init
    if step.type != init.type and head not in frame.builder.used:
        return gone  # a name used again for something else
    return frame.builder.carry(draft, name, init, head, step)


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    """Names that statements bind, in order."""
    out: list[str] = []
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                out.append(node.id)
    return out


# Mesh scopes


def _with(
    frame: Frame, stmt: ast.With, items: Sequence[ast.withitem], body: Sequence[ast.stmt]
) -> Return | None:
    if not items:
        return run(frame, body)
    item, *rest = items
    span = frame.span(item.context_expr)
    value = evaluate(frame, item.context_expr)
    own, source = _mesh(frame, span, value)
    binding = item.optional_vars.id if isinstance(item.optional_vars, ast.Name) else ""
    inside = enter(frame.mesh, own, frame.levels, binding, span)
    before = frame.builder.enter_scope(own, inside, binding, frame.span(stmt), source)
    if binding:
        frame.names[binding] = MeshBinding(own, binding)
    found = _with(frame, stmt, rest, body)
    frame.builder.leave_scope(before)
    return found


def _mesh(frame: Frame, span: Span, value: Any) -> tuple[Mesh, str]:
    """The mesh a ``with`` states, and the binding it slices or re-arranges as written."""
    if isinstance(value, MeshBinding):
        return value.mesh, value.spelled
    if not isinstance(value, MeshForm):
        refuse("with-mesh", span, found=repr(value))
    if isinstance(value.source, MeshBinding):
        shape, strides = _arrangement(value.layout, span)
        mesh = rearrange(
            value.source.mesh, shape, _axis_names(value, len(shape), span), strides, span
        )
        return mesh, value.source.spelled
    return _declared(frame, value, span), ""


def _declared(frame: Frame, form: MeshForm, span: Span) -> Mesh:
    sizes = {t.level: t.size for t in frame.topologies}
    levels = form.source if isinstance(form.source, (tuple, list)) else (form.source,)
    words = [getattr(x, "level", x) for x in levels]
    for word in words:
        if word not in frame.levels:
            refuse("mesh-level-unknown", span, level=word, known=" ".join(frame.levels))
        if word not in sizes:
            known = " ".join(f"{k}={v}" for k, v in sizes.items()) or "none"
            refuse("mesh-level-undeclared", span, level=word, known=known)
    layout, names = form.layout, form.names
    if len(words) == 1:
        groups = [(layout, names)]
    else:
        if not isinstance(layout, tuple) or len(layout) != len(words) or not names:
            refuse("mesh-form", span, found=f"layout={layout!r} for {len(words)} levels")
        nested = all(isinstance(x, tuple) for x in layout)
        groups = [
            (part if nested else (part,), name if isinstance(name, tuple) else (name,))
            for part, name in zip(layout, names, strict=True)
        ]
    axes: list[Any] = []
    for word, (part, called) in zip(words, groups, strict=True):
        shape, strides = _arrangement(part, span)
        made = arrange(word, shape, _axis_names(replace_names(form, called), len(shape), span),
                       strides)  # fmt: skip
        top = sum((a.extent - 1) * a.stride for a in made) + 1
        if top > sizes[word]:
            refuse("mesh-too-large", span, level=word, units=top, size=sizes[word])
        axes += made
    return Mesh(tuple(axes), tuple((w, sizes[w]) for w in words))


def replace_names(form: MeshForm, names: Any) -> MeshForm:
    """The form with other axis names."""
    return MeshForm(form.source, form.layout, names)


def _arrangement(layout: Any, span: Span) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape and strides of ``layout=``; refuses what is not flat positive integers."""
    strides: Any = None
    shape = getattr(layout, "shape", layout)
    if shape is not layout:
        strides = layout.strides
    elif (
        isinstance(layout, tuple) and len(layout) == 2 and all(isinstance(x, tuple) for x in layout)
    ):
        shape, strides = layout
    if isinstance(shape, int):
        shape = (shape,)
        strides = None if strides is None else (strides,)
    ok = isinstance(shape, tuple) and all(type(x) is int and x > 0 for x in shape)
    if strides is not None:
        ok = ok and len(strides) == len(shape) and all(type(x) is int and x > 0 for x in strides)
    if not ok or not shape:
        refuse("mesh-form", span, found=f"layout={layout!r}")
    return shape, strides


def _axis_names(form: MeshForm, rank: int, span: Span) -> tuple[str, ...]:
    names = form.names or tuple(f"axis{n}" for n in range(rank))
    if len(names) != rank or len(set(names)) != rank or not all(map(str.isidentifier, names)):
        refuse("mesh-names", span, names=names, rank=rank)
    return names


__all__ = ["assign", "find", "replace", "run"]
