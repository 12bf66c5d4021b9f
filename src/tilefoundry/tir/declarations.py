"""What a printed kernel declares: buffers, rings, barriers, counters, meshes by name."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.dtype import dtype_of
from tilefoundry.ir.mesh import Axis, Mesh, Topology
from tilefoundry.ir.spec import layout_from
from tilefoundry.lang.express import evaluate
from tilefoundry.lang.forms import MeshBinding
from tilefoundry.lang.frame import Frame
from tilefoundry.lang.python import spell
from tilefoundry.lang.statements import scope_mesh
from tilefoundry.tir.comments import Comments
from tilefoundry.tir.operands import BarrierAt, called, declared, malformed
from tilefoundry.tir.program import Barrier, Buffer, Counter

NUMBER, NUMBERS = "a whole number", "a tuple of whole numbers"
WHOLE = {
    "offset": NUMBER,
    "count": NUMBER,
    "slots": NUMBER,
    "shape": NUMBERS,
    "registers": NUMBERS,
    "storage": "a string",
    "dtype": "a string",
    "role": "a string",
}
"""What the arguments of declarations are."""
DECLARED = {
    "tensor_view": dict.fromkeys(("offset", "dtype", "storage", "shape"), True)
    | dict.fromkeys(("layout", "role", "registers", "mesh"), False),
    "alloc_tensor": dict.fromkeys(("shape", "dtype", "storage"), True)
    | dict.fromkeys(("layout", "role", "registers", "slots", "mesh"), False),
    "mbarrier": {"offset": True, "count": True, "slots": False},
}
"""The arguments of each declaration, the one given by position first; True: it must be there."""
STATED = {
    "shared_memory": "T.shared_memory(bytes)",
    "align": "T.align(bytes, buffer, ...)",
}


def _is(value: Any, kind: str) -> bool:
    if kind == NUMBER:
        return type(value) is int
    if kind == NUMBERS:
        return isinstance(value, tuple) and all(type(x) is int for x in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, str)


def stated_topologies(span: Span, value: Any) -> tuple[Topology, ...]:
    """Levels and their sizes; refuses what is not a tuple of them."""
    items: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    for item in items:
        known = isinstance(item, Topology) and isinstance(item.level, str)
        if not known or type(item.size) is not int or item.size < 1:
            fix = 'write (Topology("cta", 132), Topology("thread", 384))'
            malformed(span, "levels and their sizes", spell(item), fix)
    return items


class Declarations:
    """The declarations of one kernel as they are read; each binds its name in ``frame``.

    ``mesh`` is the mesh in force, ``meshes`` the meshes that names stand for.
    """

    def __init__(self, frame: Frame, comments: Comments, params: Sequence[Buffer]) -> None:
        self.frame = frame
        self.comments = comments
        self.buffers: dict[str, Buffer] = {}
        self.params: dict[str, Buffer] = {p.name: p for p in params}
        self.barriers: list[Barrier] = []
        self.counters: dict[str, Counter] = {}
        self.topologies: tuple[Topology, ...] | None = None
        self.shared_bytes = 0
        self.mesh = Mesh()
        self.meshes: dict[str, Mesh] = {}
        for param in params:
            frame.names[param.name] = declared(param)

    def _span(self, node: ast.AST) -> Span:
        return self.frame.span(node)

    def declare(self, stmt: ast.stmt, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Tuple):
            views = [self._arguments(item, "tensor_view") for item in value.elts]
            self._buffer(stmt, name.removesuffix("_stages"), views)
            return
        match called(self.frame, value):
            case "tensor_view":
                self._buffer(stmt, name, [self._arguments(value, "tensor_view")])
            case "alloc_tensor":
                self._alloc(stmt, name, self._arguments(value, "alloc_tensor"))
            case "mbarrier":
                self._barrier(stmt, name, self._arguments(value, "mbarrier"))
            case "counter":
                self.counters[name] = Counter(name)
                self.frame.names[name] = self.counters[name].expr()
            case _:
                if not isinstance(value, ast.Call) or ast.unparse(value.func) != "Mesh":
                    expected = "T.tensor_view, T.alloc_tensor, T.mbarrier, T.counter or Mesh"
                    fix = f"give {name} one of these, or a tuple of T.tensor_view"
                    malformed(self._span(value), expected, ast.unparse(value), fix)
                mesh, _ = self.read_mesh(value)
                self.frame.names[name] = MeshBinding(mesh, name)
                self.meshes[name] = mesh

    def _arguments(self, node: ast.expr, call: str) -> tuple[ast.Call, dict[str, Any]]:
        """The arguments of ``T.call``, the first under its own name."""
        if called(self.frame, node) != call:
            found = ast.unparse(node)
            malformed(self._span(node), f"T.{call}(...)", found, f"write T.{call}(...)")
        assert isinstance(node, ast.Call)
        takes = DECLARED[call]
        given: dict[str, Any] = dict(zip(takes, node.args, strict=False))
        given |= {str(k.arg): k.value for k in node.keywords}
        unknown = [k for k in given if k not in takes]
        needed = [k for k, wanted in takes.items() if wanted and k not in given]
        if unknown or needed or len(node.args) > 1:
            found = " ".join([*(f"{k}=" for k in unknown), *(f"no {k}" for k in needed)])
            expected = ", ".join([next(iter(takes)), *(f"{k}=" for k in list(takes)[1:])])
            fix = f"write T.{call}({expected})"
            malformed(self._span(node), expected, found or "more by position", fix)
        values = {k: evaluate(self.frame, v) for k, v in given.items() if k != "mesh"}
        if "mesh" in given:
            values["mesh"] = self._named_mesh(given["mesh"])
        for key, kind in WHOLE.items():
            if key in values and not _is(values[key], kind):
                where = self._span(given[key])
                malformed(where, f"{key} to be {kind}", spell(values[key]), f"give {key} as {kind}")
        return node, values

    def _named_mesh(self, node: ast.expr) -> Mesh:
        if isinstance(node, ast.Constant) and node.value is None:
            return Mesh()
        name = node.id if isinstance(node, ast.Name) else ""
        if name not in self.meshes:
            fix = "name a scope around it, or a mesh above it"
            malformed(self._span(node), "the name of a mesh", ast.unparse(node), fix)
        return self.meshes[name]

    def _buffer(
        self, stmt: ast.stmt, name: str, views: list[tuple[ast.Call, dict[str, Any]]]
    ) -> None:
        """A buffer of which each slot has its own offset."""
        if not views:
            malformed(self._span(stmt), "one T.tensor_view a slot", "none", "give each slot one")
        first = views[0][1]
        offsets: list[int] = []
        for node, values in views:
            if {k: repr(v) for k, v in values.items() if k != "offset"} != {
                k: repr(v) for k, v in first.items() if k != "offset"
            }:
                fix = "let the views of a ring differ in their offset only"
                malformed(self._span(node), ast.unparse(views[0][0]), ast.unparse(node), fix)
            offsets.append(values["offset"])
        made = self._made(stmt, name, first)
        self._add(stmt, replace(made, slots=len(views), offsets=tuple(offsets)))

    def _alloc(self, stmt: ast.stmt, name: str, given: tuple[ast.Call, dict[str, Any]]) -> None:
        _, values = given
        slots = values.get("slots", 1)
        made = self._made(stmt, name.removesuffix("_stages") if slots > 1 else name, values)
        self._add(stmt, replace(made, slots=slots, mesh=values.get("mesh", self.mesh)))

    def _made(self, stmt: ast.stmt, name: str, values: dict[str, Any]) -> Buffer:
        span = self._span(stmt)
        storage = values["storage"]
        layout = values.get("layout")
        made = None if layout is None else layout_from(layout, span)
        if made is not None:
            made.groups(values["shape"], span)
        return Buffer(
            name,
            values["shape"],
            dtype_of(values["dtype"], span),
            storage,
            made,
            values.get("role", "work" if storage == "gmem" else "local"),
            mesh=values.get("mesh", Mesh()),
            registers=values.get("registers"),
            span=self.comments.behind(stmt)[1],
        )

    def _add(self, stmt: ast.stmt, buffer: Buffer) -> None:
        assert isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)
        name = stmt.targets[0].id
        if name in self.buffers or name in self.params:
            malformed(self._span(stmt), "a new name", f"{name} again", "name it otherwise")
        self.buffers[name] = buffer
        self.frame.names[name] = declared(buffer)

    def _barrier(self, stmt: ast.stmt, name: str, given: tuple[ast.Call, dict[str, Any]]) -> None:
        _, values = given
        made = Barrier(name, values.get("slots", 1), values["count"], values["offset"])
        self.barriers.append(made)
        self.frame.names[name] = BarrierAt(made)

    def counter(self, stmt: ast.stmt, name: str) -> Counter:
        if name not in self.counters:
            fix = f"declare {name} = T.counter() first"
            malformed(self._span(stmt), "a counter", name, fix)
        return self.counters[name]

    def state(self, node: ast.Call, path: str) -> None:
        """What a kernel says of itself before its statements."""
        values = [evaluate(self.frame, x) for x in node.args]
        if path == "topologies":
            self.topologies = stated_topologies(self._span(node), tuple(values))
            self.frame.topologies = self.topologies
            return
        if path == "shared_memory" and len(values) == 1 and type(values[0]) is int:
            self.shared_bytes = values[0]
            return
        names = [n.id for n in node.args[1:] if isinstance(n, ast.Name)]
        if path != "align" or type(values[0]) is not int or len(names) != len(values) - 1:
            expected = STATED[path]
            malformed(self._span(node), expected, ast.unparse(node), f"write {expected}")
        for name in names:
            owner = self.params if name in self.params else self.buffers
            if name not in owner:
                fix = "align buffers declared above"
                malformed(self._span(node), "a buffer", name, fix)
            owner[name] = replace(owner[name], align=values[0])
            self.frame.names[name] = declared(owner[name])

    def read_mesh(self, node: ast.expr) -> tuple[Mesh, str]:
        """A mesh as written, and the scope that it narrows."""
        span, shift = self._span(node), None
        if isinstance(node, ast.Call):
            shift = next((k.value for k in node.keywords if k.arg == "offset"), None)
            kept = [k for k in node.keywords if k.arg != "offset"]
            node = ast.copy_location(ast.Call(node.func, node.args, kept), node)
        own, source = scope_mesh(self.frame, span, evaluate(self.frame, node))
        if shift is None:
            return own, source
        value = evaluate(self.frame, shift)
        moved = value if isinstance(value, tuple) else (value,)
        if source or len(moved) != len(own.levels) or not all(type(x) is int for x in moved):  # pyright: ignore[reportUnknownVariableType]
            fix = "give the first unit of each level that the mesh declares"
            malformed(span, "offset= of one number a level", ast.unparse(shift), fix)
        by = dict(zip(own.levels, moved, strict=True))
        axes = tuple(Axis(a.level, a.name, a.extent, a.stride, by[a.level]) for a in own.axes)
        return Mesh(axes, own.sizes), ""
