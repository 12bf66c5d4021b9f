"""Subscripts: slices of tensors, slices of meshes, and types ``Tensor[...]``."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import Dim, Expr, bounds
from tilefoundry.ir.mesh import narrow
from tilefoundry.ir.node import Node
from tilefoundry.lang.forms import MeshBinding, Tensor, Window
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import Evaluate, compute, spell
from tilefoundry.lang.spelling import index_text
from tilefoundry.lang.typing import tensor_type
from tilefoundry.ops import find


def subscript(
    frame: Frame, node: ast.Subscript, base: Any, index: ast.expr, evaluate: Evaluate
) -> Any:
    """``base[index]`` by what ``base`` is."""
    span = frame.span(node)
    value = evaluate(frame, index)
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    if isinstance(base, MeshBinding):
        for item in items:
            if not _whole(item):
                refuse("mesh-slice-form", span, found=spell(item))
        spelled = f"{base.spelled}[{index_text(items)}]"
        return MeshBinding(narrow(base.mesh, items, span), spelled)
    if isinstance(base, Node):
        return _slice(frame, span, base, items)
    if isinstance(base, Window):
        refuse("window-operator", span, left=spell(base), right=spell(value))
    if isinstance(base, type) and issubclass(base, Tensor):
        return tensor_type(base(items), span, frame.builder.context.storages)
    return compute(frame, node, lambda b, i: b[i], base, value)


def _whole(item: object) -> bool:
    """A compile-time integer, or a slice of them whose step is not 0."""
    if isinstance(item, slice):
        ends = (item.start, item.stop, item.step)
        return all(e is None or type(e) is int for e in ends) and item.step != 0
    return type(item) is int


def _slice(frame: Frame, span: Span, x: Node, items: tuple[Any, ...]) -> Node:
    shape = x.tensor.shape
    items = _spread(items, len(shape), span, x)
    starts: list[Dim] = []
    sizes: list[Dim] = []
    strides: list[Dim] = []
    kept: list[Dim] = []
    axis = 0
    for item in items:
        if item is None:
            kept.append(1)
            continue
        start, size, stride, keep = _range(item, shape[axis], axis, span)
        starts.append(start)
        sizes.append(size)
        strides.append(stride)
        if keep:
            kept.append(size)
        axis += 1
    whole = all(
        s == 0 and n == e and d == 1
        for s, n, d, e in zip(starts, sizes, strides, shape, strict=True)
    )
    out = x
    if not whole:
        op = find("slice")
        assert op is not None
        plain = all(d == 1 for d in strides)
        args = (x, tuple(starts), tuple(sizes)) + (() if plain else (tuple(strides),))
        out = frame.builder.apply(op, args, {}, span)
    if tuple(kept) != tuple(sizes):
        op = find("reshape")
        assert op is not None
        out = frame.builder.apply(op, (out, tuple(kept)), {}, span)
    return out


def _spread(items: tuple[Any, ...], rank: int, span: Span, x: Node) -> tuple[Any, ...]:
    """Fill in ``...`` and the axes not named."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > rank:
        refuse("slice-rank", span, op="a subscript", given=used, rank=rank, type=x.type)
    if Ellipsis not in [i for i in items if i is None or i is Ellipsis]:
        items = (*items, Ellipsis)
    at = next(n for n, i in enumerate(items) if i is Ellipsis)
    fill = (slice(None),) * (rank - used)
    rest = items[at + 1 :]
    if any(i is Ellipsis for i in rest):
        refuse("slice-rank", span, op="a subscript", given="two '...'", rank=rank, type=x.type)
    return (*items[:at], *fill, *rest)


def _range(item: Any, extent: Dim, axis: int, span: Span) -> tuple[Dim, Dim, Dim, bool]:
    """(start, size, stride, axis kept) of one index."""
    if isinstance(item, Window):
        return item.start, item.size, 1, True
    if isinstance(item, (int, Expr)) and not isinstance(item, bool):
        start = item + extent if bounds(item)[1] < 0 else item
        return start, 1, 1, False
    if not isinstance(item, slice):
        _no_index(item, axis, span)
    start = _edge(item.start, 0, extent, axis, span)
    stop = _edge(item.stop, extent, extent, axis, span)
    step = 1 if item.step is None else item.step
    if type(step) is not int or step < 1:
        found = f"a step of {spell(step)}"
        refuse("slice-index", span, axis=axis, found=found, fix=REVERSED.format(axis=axis))
    if isinstance(stop, int) and isinstance(extent, int):
        stop = min(stop, extent)  # Python's rule for a stop beyond the end
    size = -((-(stop - start)) // step)
    if isinstance(size, int):
        size = max(size, 0)
    return start, size, step, True


def _edge(value: Any, default: Dim, extent: Dim, axis: int, span: Span) -> Dim:
    if value is None:
        return default
    if isinstance(value, Window):
        value = value.start
    if not isinstance(value, (int, Expr)) or isinstance(value, bool):
        _no_index(value, axis, span)
    if bounds(value)[1] < 0:
        value = value + extent
        return max(value, 0) if isinstance(value, int) else value  # as Python takes it
    return value


REVERSED = (
    "take a step of 1 or more; backwards, tf.index_select(x, index, {axis}) by an index tensor "
    "that counts down"
)


def _no_index(value: Any, axis: int, span: Span) -> NoReturn:
    """Refuse what is no index, with what to write for it."""
    fix = "write an integer"
    if isinstance(value, (Node, tuple, list)):
        fix = "for positions held in a tensor use tf.index_select or tf.gather"
    elif not isinstance(value, bool) and hasattr(type(value), "__index__"):
        fix = "write int(...) around it, which makes it a number of Python"
    refuse("slice-index", span, axis=axis, found=spell(value), fix=fix)
