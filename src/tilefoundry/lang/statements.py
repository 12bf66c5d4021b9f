"""Statements: assignment, loops, mesh scopes, return."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir import expr as ix
from tilefoundry.ir.expr import Dim, Expr, LoopVar
from tilefoundry.ir.mesh import Mesh, Topology, arrange, enter, rearrange
from tilefoundry.ir.node import Node, Return
from tilefoundry.ir.spec import injective
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.build import LoopDraft
from tilefoundry.lang.decl import kind_of
from tilefoundry.lang.express import binary, evaluate, truth, written_type
from tilefoundry.lang.forms import Dropped, MeshBinding, MeshForm, OpRef, Tensor, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import (
    MOST_UNROLLED,
    construct,
    outside,
    several,
    spell,
    spread,
)
from tilefoundry.lang.typing import device_memory, tensor_type
from tilefoundry.layout import Layout
from tilefoundry.ops import find


def run(frame: Frame, body: Sequence[ast.stmt]) -> Return | None:
    """Parse statements in order; the ``return`` among them, if any."""
    for n, stmt in enumerate(body):
        found = _statement(frame, stmt)
        if found is not None:
            if n + 1 < len(body) and not isinstance(stmt, (ast.If, ast.While)):
                refuse("return-not-last", frame.span(body[n + 1]))
            return found  # what follows a compile-time branch that returns is not reached
    return None


def _statement(frame: Frame, stmt: ast.stmt) -> Return | None:
    match stmt:
        case ast.Assign(targets, value):
            made = evaluate(frame, value)
            for target in targets:
                assign(frame, target, made)
        case ast.AnnAssign(ast.Name() as target, annotation, value):
            _annotated(frame, target, annotation, value)
        case ast.AnnAssign(target) | ast.AugAssign(target) if not isinstance(target, ast.Name):
            refuse("assign-target", frame.span(target), what=ast.unparse(target))
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
        case ast.While(test, body, orelse):
            if orelse:
                outside(frame.span(stmt), "else of a while")
            return _while(frame, stmt, test, body)
        case ast.Assert(test, message):
            if not truth(frame, test):
                why = spell(evaluate(frame, message)) if message else ast.unparse(test)
                refuse("assert-failed", frame.span(stmt), why=why)
        case ast.For():
            return _for(frame, stmt)
        case ast.With(items, body):
            return _with(frame, stmt, items, body)
        case ast.Return(value):
            return _return(frame, stmt, value)
        case _:
            outside(frame.span(stmt), construct(stmt))
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
            _unpack(frame, span, items, value)
        case _:
            refuse("assign-target", span, what=ast.unparse(target))


def _unpack(frame: Frame, span: Span, items: Sequence[ast.expr], value: Any) -> None:
    """Bind several names; ``*rest`` takes what the others leave."""
    if isinstance(value, (range, str)):
        value = tuple(value)
    starred = [n for n, item in enumerate(items) if isinstance(item, ast.Starred)]
    least = len(items) - len(starred)
    want = f"at least {least}" if starred else str(least)
    if not isinstance(value, (tuple, list)):
        refuse("unpack", span, want=want, got=f"one value, {spell(value)}")
    surplus = len(value) - least
    if surplus < 0 or (surplus and not starred):
        refuse("unpack", span, want=want, got=f"{len(value)} values")
    parts = list(value)
    if starred:
        at = starred[0]
        parts[at : at + surplus] = [parts[at : at + surplus]]
    for item, part in zip(items, parts, strict=True):
        assign(frame, item.value if isinstance(item, ast.Starred) else item, part)


def _annotated(
    frame: Frame, target: ast.Name, annotation: ast.expr, value: ast.expr | None
) -> None:
    if value is None:
        outside(frame.span(target), "a declaration without a value")
    made = evaluate(frame, value)
    stated = written_type(frame, annotation)
    if isinstance(stated, Tensor):
        stated = tensor_type(stated, frame.span(annotation), frame.builder.context.storages)
    derived = made.type if isinstance(made, Node) else made
    types = isinstance(made, Node) or isinstance(stated, TensorType)
    if types and stated != derived:
        refuse("annotation-differs", frame.span(target), stated=spell(stated),
               derived=spell(derived))  # fmt: skip
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
    for n, item in enumerate(made if isinstance(made, (tuple, list)) else (made,)):
        if not isinstance(item, Node):
            refuse("return-value", span, found=spell(item))
        frame.builder.whole("return", n, item, span)
        values.append(_materialised(frame, item, span))
    if not values:
        refuse("return-value", span, found="an empty tuple")
    out = Return(tuple(values), span)
    frame.builder.stmts.append(out)
    frame.builder.used.update(values)
    return out


def _materialised(frame: Frame, value: Node, span: Span) -> Node:
    """A function's results live in device memory: a value elsewhere is stored there."""
    home = device_memory(frame.builder.context.storages)
    if value.tensor.storage == home:
        return value
    op = find("reshard")
    assert op is not None
    return frame.builder.apply(op, (value,), {"storage": home}, span)


# Loops


def _for(frame: Frame, stmt: ast.For) -> Return | None:
    span = frame.span(stmt)
    if stmt.orelse:
        outside(span, "else of a for")
    head = stmt.iter
    if isinstance(head, ast.Call):
        callee = evaluate(frame, head.func)
        if callee is range:
            return _range_loop(frame, stmt, head)
        if isinstance(callee, OpRef) and callee.name == "tile":
            return _tile_loop(frame, stmt, head)
    for item in several(frame, head, evaluate(frame, head)):
        assign(frame, stmt.target, item)
        if run(frame, stmt.body) is not None:
            refuse("return-in-loop", span)
    return None


def _loop_name(frame: Frame, stmt: ast.For) -> str:
    if not isinstance(stmt.target, ast.Name):
        refuse("loop-target", frame.span(stmt.target), found=ast.unparse(stmt.target))
    return stmt.target.id


def _range_loop(frame: Frame, stmt: ast.For, head: ast.Call) -> None:
    span = frame.span(stmt)
    parts = spread(frame, head.args, evaluate)
    if head.keywords or not 1 <= len(parts) <= 3:
        refuse("loop-range", span, found=ast.unparse(head))
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, Expr)):
            refuse("loop-range", span, found=spell(part))
    start, stop, step = (0, parts[0], 1) if len(parts) == 1 else (*parts[:2], *(parts[2:] or [1]))
    if ix.bounds(step)[0] < 1:
        refuse("loop-step", span, step=step)
    name = _loop_name(frame, stmt)
    _loop(frame, stmt, name, start, stop, step, None)


def _tile_loop(frame: Frame, stmt: ast.For, head: ast.Call) -> None:
    span = frame.span(stmt)
    values = spread(frame, head.args, evaluate)
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


def loop_variable(name: str, start: Dim, stop: Dim, step: Dim) -> LoopVar:
    """The variable of ``range(start, stop, step)``, with the bounds that these give it."""
    lo = ix.bounds(start)[0]
    hi = ix.bounds(stop)[1] - 1
    unit = math.gcd(ix.multiple_of(start), ix.multiple_of(step)) or 1
    if hi != math.inf and unit > 1:
        hi = hi // unit * unit
    return LoopVar(name, lo, max(hi, lo), unit)


ASSIGNED = "assign {name} before the loop, so that the loop carries it, or read it inside"
CHANGED = (
    "compute it from the loop's variable, as start + i * step; or write the loop out at compile "
    "time, where a number may change: for i in list(range(stop))"
)
VARIABLE = "compute it from the loop's range, or read it inside"


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
    var = loop_variable(name, start, stop, step)
    draft = LoopDraft(var, start, stop, step, window, span)
    assigned = list(dict.fromkeys(_assigned(stmt.body)))
    before = dict(frame.names)
    carried = {n: v for n in assigned if isinstance(v := before.get(n), Node)}
    heads = {n: builder.head(n, v) for n, v in carried.items()}
    frame.names.update(heads)
    changed = Dropped(f"it changes inside the loop on line {span.line}", CHANGED)
    for n in assigned:
        if n in before and n not in carried and not isinstance(before[n], Dropped):
            before[n] = frame.names[n] = changed
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
    frame.names[name] = Dropped(f"it is the variable of the loop on line {span.line}", VARIABLE)


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
    gone = Dropped(f"it is assigned inside the loop on line {line} only", ASSIGNED)
    if name not in carried:
        known = frame.names.get(name)
        return known if isinstance(known, Dropped) else gone
    init, head, step = carried[name], heads[name], after.get(name)
    read = head in frame.builder.used or any(after.get(n) is head for n in heads if n != name)
    if not isinstance(step, Node):
        if read:
            left = f"nothing: {step.why}" if isinstance(step, Dropped) else kind_of(step)
            refuse("loop-type", draft.span, name=name, before=init.type, after=left)
        return gone
    if step is head:
        frame.builder.carry(draft, name, init, head, step)  # the body may read the head
        return init
    if step.type != init.type and not read:
        return gone  # a name used again for something else
    return frame.builder.carry(draft, name, init, head, step)


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    """Names that statements bind, in order."""
    inside = (node for stmt in body for node in ast.walk(stmt))
    return [n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


# Mesh scopes


def _with(
    frame: Frame, stmt: ast.With, items: Sequence[ast.withitem], body: Sequence[ast.stmt]
) -> Return | None:
    if not items:
        return run(frame, body)
    item, *rest = items
    span = frame.span(item.context_expr)
    value = evaluate(frame, item.context_expr)
    own, source = scope_mesh(frame, span, value)
    target = item.optional_vars
    if target is not None and not isinstance(target, ast.Name):
        refuse("with-target", frame.span(target), found=ast.unparse(target))
    binding = target.id if target is not None else ""
    inside = enter(frame.mesh, own, frame.levels, binding, span)
    before = frame.builder.enter_scope(own, inside, binding, frame.span(stmt), source)
    if binding:
        frame.names[binding] = MeshBinding(own, binding)
    found = _with(frame, stmt, rest, body)
    frame.builder.leave_scope(before)
    return found


def scope_mesh(frame: Frame, span: Span, value: Any) -> tuple[Mesh, str]:
    """The mesh a ``with`` states, and the binding it slices or re-arranges as written."""
    if isinstance(value, MeshBinding):
        return value.mesh, value.spelled
    if not isinstance(value, MeshForm):
        refuse("with-mesh", span, found=spell(value))
    if isinstance(value.source, MeshBinding):
        shape, strides = _arrangement(value.layout, span)
        if strides is not None and not injective(shape, strides):
            refuse("mesh-overlap", span, shape=shape, strides=strides)
        mesh = rearrange(
            value.source.mesh, shape, _axis_names(value, len(shape), span), strides, span
        )
        return mesh, value.source.spelled
    return _declared(frame, value, span), ""


def _declared(frame: Frame, form: MeshForm, span: Span) -> Mesh:
    sizes = {t.level: t.size for t in frame.topologies}
    levels = form.source if isinstance(form.source, (tuple, list)) else (form.source,)
    words = [x.level if isinstance(x, Topology) else x for x in levels]
    if not words or len(set(map(str, words))) != len(words):
        refuse("mesh-form", span, found=f"levels {words}")
    for word in words:
        if word not in frame.levels:
            refuse("mesh-level-unknown", span, level=word, known=" ".join(frame.levels))
        if word not in sizes:
            known = " ".join(f"{k}={v}" for k, v in sizes.items()) or "none"
            refuse("mesh-level-undeclared", span, level=word, known=known)
    for stated in levels:
        size = sizes[stated.level] if isinstance(stated, Topology) else 0
        if isinstance(stated, Topology) and stated.size != size:
            refuse("mesh-form", span, found=f"{stated}, of which the module declares {size}")
    layout, names = form.layout, form.names
    if len(words) == 1:
        groups = [(layout, names)]
    else:
        if not isinstance(layout, tuple) or not len(layout) == len(words) == len(names):
            found = f"layout={layout!r} and names={names!r} for {len(words)} levels"
            refuse("mesh-form", span, found=found)
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
        if strides is not None and not injective(shape, strides):
            refuse("mesh-overlap", span, shape=shape, strides=strides)
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
    shape: Any = layout
    if isinstance(layout, Layout):
        shape, strides = layout.shape, layout.strides
    elif (
        isinstance(layout, tuple) and len(layout) == 2 and all(isinstance(x, tuple) for x in layout)
    ):
        shape, strides = layout
    if isinstance(shape, int):
        shape = (shape,)
        strides = None if strides is None else (strides,)
    paired = strides is None or (_positive(strides) and len(strides) == len(shape))
    if not _positive(shape) or not paired:
        refuse("mesh-form", span, found=f"layout={layout!r}")
    return shape, strides


def _positive(items: Any) -> bool:
    """A tuple of positive integers, at least one."""
    return isinstance(items, tuple) and bool(items) and all(type(x) is int and x > 0 for x in items)


def _axis_names(form: MeshForm, rank: int, span: Span) -> tuple[str, ...]:
    names = form.names or tuple(f"axis{n}" for n in range(rank))
    words = all(isinstance(n, str) and n.isidentifier() for n in names)
    if not words or len(names) != rank or len(set(names)) != rank:
        refuse("mesh-names", span, names=names, rank=rank)
    return names
