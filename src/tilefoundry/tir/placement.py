"""Where the text of a kernel declares its buffers.

A buffer in a unit's own storage is declared where the units that hold it are in force and
the axes of its layout have names: at the head of the outermost such scope around its first
use. A mesh that no scope around it has is given a name at the head of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilefoundry.ir.mesh import Axis, Mesh
from tilefoundry.tir.naming import WORDS, fresh, ring_name
from tilefoundry.tir.program import Buffer, For, Issue, PrimFunc, Stmt, When, With, views

Path = tuple[With, ...]


@dataclass
class Placed:
    """``at``: the buffers that each scope (None: the kernel) declares; ``meshes``: meshes
    named at the head of the kernel; ``mesh_of``: the name of a buffer's mesh."""

    at: dict[With | None, list[Buffer]] = field(default_factory=dict)
    meshes: dict[str, Mesh] = field(default_factory=dict)
    mesh_of: dict[Buffer, str] = field(default_factory=dict)


def place_buffers(func: PrimFunc) -> Placed:
    """Where each of a kernel's buffers is declared."""
    first: dict[Buffer, Path] = {}
    bindings: set[str] = set()
    _first_uses(func.body, (), first, bindings)
    names = {ring_name(b) for b in (*func.params, *func.buffers)} | {
        x.name for x in (*func.barriers, *func.counters)
    }
    placed = Placed()
    for buffer in func.buffers:
        scope = _scope(buffer, first.get(buffer, ()))
        if scope is not None:
            placed.mesh_of[buffer] = scope.binding
        elif buffer.mesh.axes:
            placed.mesh_of[buffer] = _named(buffer.mesh, placed, names | bindings | WORDS)
        placed.at.setdefault(scope, []).append(buffer)
    return placed


def _scope(buffer: Buffer, path: Path) -> With | None:
    """The outermost scope around the first use that has the buffer's mesh and axes."""
    layout = buffer.layout
    needs: set[Axis] = set()
    if layout is not None:
        needs = {*layout.split_axes, *(a for a, _ in layout.partial)}
    if not needs and not buffer.mesh.axes:
        return None
    seen: set[Axis] = set()
    for scope in path:
        seen |= set(scope.own.axes)
        held = buffer.mesh.axes in ((), scope.mesh.axes)
        if held and needs <= seen:
            return scope
    return None


def _named(mesh: Mesh, placed: Placed, taken: set[str]) -> str:
    for name, known in placed.meshes.items():
        if known.axes == mesh.axes:
            return name
    name = fresh("units", taken | set(placed.meshes))
    placed.meshes[name] = mesh
    return name


def _first_uses(
    body: Sequence[Stmt], path: Path, first: dict[Buffer, Path], bindings: set[str]
) -> None:
    for stmt in body:
        for view in views(stmt):
            first.setdefault(view.buffer, path)
        if isinstance(stmt, Issue):
            for value in stmt.attrs.values():
                if isinstance(value, Buffer):
                    first.setdefault(value, path)
        if isinstance(stmt, With):
            bindings.add(stmt.binding)
            _first_uses(stmt.body, (*path, stmt), first, bindings)
        elif isinstance(stmt, (For, When)):
            if isinstance(stmt, For):
                bindings.add(stmt.var.name)
            _first_uses(stmt.body, path, first, bindings)


__all__ = ["Placed", "place_buffers"]
