"""Meshes of scopes as source text: declared, a slice of a binding, or a slice re-arranged."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence

from tilefoundry.diag import Refusal
from tilefoundry.ir.mesh import Mesh, narrow, rearrange
from tilefoundry.lang.spelling import Place, index_text, tuple_text


def scope_text(place: Place, own: Mesh, source: str) -> str | None:
    """The mesh of a scope; ``source`` is the binding and index that it narrows, if any.

    None where ``source`` names no binding in sight that gives these units.
    """
    if not source:
        assert not any(own.offset(level) for level in own.levels), f"{own} is a slice"
        return declared_text(place, own)
    root, steps = subscripts(source)
    for b in reversed(place.bindings):
        if b.written != root:
            continue
        base = _narrowed(b.mesh, steps)
        if base is None:
            continue
        spelled = b.name + "".join(f"[{index_text(s)}]" for s in steps)
        if base.axes == own.axes:
            place.used.add(b.name)
            return spelled
        layout = _arrangement(base, own)
        if layout is not None:
            place.used.add(b.name)
            return f"{place.word('Mesh')}({spelled}, layout={layout}, names={_axis_names(own)})"
    return None


def declared_text(place: Place, mesh: Mesh) -> str:
    """``Mesh(("cta",), layout=(8, 32), names=("row", "col"))``; where levels do not start
    at their first unit, ``offset=`` says where they do."""
    levels = tuple_text([f'"{level}"' for level in mesh.levels])
    parts: list[str] = []
    for level in mesh.levels:
        axes = mesh.at(level)
        shape = tuple_text([str(a.extent) for a in axes])
        strides = tuple(a.stride for a in axes)
        compact = strides == _row_major(tuple(a.extent for a in axes))
        parts.append(shape if compact else f"({shape}, {tuple_text([str(s) for s in strides])})")
    named = [_axis_names(Mesh(mesh.at(level))) for level in mesh.levels]
    moved = [str(mesh.offset(level)) for level in mesh.levels]
    one = len(parts) == 1
    layout = parts[0] if one else tuple_text(parts)
    names = named[0] if one else tuple_text(named)
    offset = moved[0] if one else tuple_text(moved)
    shift = f", offset={offset}" if any(word != "0" for word in moved) else ""
    return f"{place.word('Mesh')}({levels}, layout={layout}{shift}, names={names})"


def subscripts(source: str) -> tuple[str, list[tuple[int | slice, ...]]]:
    """``threads[1:3, :]`` as the binding's name and the indices applied to it in turn."""
    node = ast.parse(source, mode="eval").body
    steps: list[tuple[int | slice, ...]] = []
    while isinstance(node, ast.Subscript):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        steps.insert(0, tuple(_index(item) for item in items))
        node = node.value
    assert isinstance(node, ast.Name), source
    return node.id, steps


def _index(node: ast.expr) -> int | slice:
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    ends = [None if e is None else ast.literal_eval(e) for e in (node.lower, node.upper)]
    return slice(*ends)


def _narrowed(mesh: Mesh, steps: Sequence[tuple[int | slice, ...]]) -> Mesh | None:
    try:
        for step in steps:
            mesh = narrow(mesh, step)
    except Refusal:
        return None
    return mesh


def _arrangement(base: Mesh, own: Mesh) -> str | None:
    """``layout=`` that re-arranges ``base`` into ``own``, None if none does."""
    if len(base.levels) != 1 or base.count() != own.count() or base.levels != own.levels:
        return None
    source = base.units(base.levels[0])
    shape = tuple(a.extent for a in own.axes)
    where = {unit: n for n, unit in enumerate(source)}
    strides = tuple(where.get(source[0] + a.stride, a.stride) for a in own.axes)
    for steps in (None, strides):
        try:
            found = rearrange(base, shape, tuple(a.name for a in own.axes), steps)
        except Refusal:
            continue
        if found.axes == own.axes:
            text = tuple_text([str(e) for e in shape])
            return text if steps is None else f"({text}, {tuple_text([str(s) for s in steps])})"
    return None


def _axis_names(mesh: Mesh) -> str:
    return tuple_text([f'"{a.name}"' for a in mesh.axes])


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))
