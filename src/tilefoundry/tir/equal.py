"""Kernels and programs as plain records: two that have equal records are the same.

Spans, and how a scope was written, are left out; names are those that are printed.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, IterVar, MinMax, Mod, OpenDim, Sym
from tilefoundry.ir.mesh import Axis, Coord, Mesh
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.tir.forms import implied
from tilefoundry.tir.naming import named, ring_name
from tilefoundry.tir.program import (
    Advance,
    Barrier,
    Buffer,
    For,
    Issue,
    PrimFunc,
    Program,
    Scalar,
    Stmt,
    Sync,
    View,
    When,
    With,
)

Record = tuple[Any, ...]


def same(a: Program | PrimFunc, b: Program | PrimFunc) -> bool:
    """Whether two programs, or two kernels, are equal in everything that has a meaning."""
    return record(a) == record(b)


def record(value: Program | PrimFunc) -> Record:
    """The program or kernel as nested tuples of strings and numbers."""
    return _func(named(value)) if isinstance(value, PrimFunc) else _program(value)


def _program(program: Program) -> Record:
    kernels = tuple((name, record(func)) for name, func in program.kernels.items())
    launches = tuple((x.kernel, x.inputs, x.outputs) for x in program.launches)
    return (
        ("name", program.name),
        ("entry", program.entry),
        ("inputs", program.inputs),
        ("launches", launches),
        ("results", program.results),
        ("weights", tuple(sorted(program.weights))),
        ("kernels", kernels),
    )


def _func(func: PrimFunc) -> Record:
    return (
        ("name", func.name),
        ("target", func.target.id),
        ("topologies", tuple((t.level, t.size) for t in func.topologies)),
        ("shared_bytes", func.shared_bytes),
        ("notes", func.notes),
        ("registers", func.registers),
        ("params", tuple(map(_buffer, func.params))),
        ("buffers", tuple(sorted(map(_buffer, func.buffers), key=lambda r: r[0]))),
        ("barriers", tuple((b.name, b.slots, b.count, b.offset) for b in func.barriers)),
        ("counters", tuple(c.name for c in func.counters)),
        ("body", tuple(map(_stmt, func.body))),
    )


def _buffer(b: Buffer) -> Record:
    return (
        ring_name(b),
        b.shape,
        b.dtype.name,
        b.storage,
        _layout(b.layout),
        b.role,
        b.slots,
        b.offsets,
        b.align,
        _mesh(b.mesh),
        b.registers,
    )


def _mesh(mesh: Mesh) -> Record:
    return tuple(map(_axis, mesh.axes))


def _axis(axis: Axis) -> Record:
    return (axis.level, axis.name, axis.extent, axis.stride, axis.offset)


def _layout(layout: ShardLayout | None) -> Record | None:
    if layout is None:
        return None
    axes = layout.axes or (None,) * len(layout.modes)
    return (
        layout.shape,
        layout.stride,
        tuple(None if a is None else _axis(a) for a in axes),
        tuple((_axis(a), kind) for a, kind in layout.partial),
        repr(layout.swizzle),
        layout.offset,
    )


def _stmt(stmt: Stmt) -> Record:
    match stmt:
        case Issue():
            reads, writes = tuple(map(_operand, stmt.reads)), tuple(map(_operand, stmt.writes))
            attrs: dict[str, Any] = dict(stmt.attrs)
            if "barrier" in attrs:
                attrs.setdefault("slot", 0)
            attrs.setdefault("op", implied(stmt.instr))
            given = tuple((k, _value(v)) for k, v in sorted(attrs.items()))
            return ("issue", stmt.instr, reads, writes, given, stmt.source)
        case Sync():
            given = tuple(
                (f.name, _value(getattr(stmt, f.name)))
                for f in fields(stmt)
                if f.name not in ("kind", "span")
            )
            return ("sync", stmt.kind, given)
        case Advance():
            return ("advance", stmt.counter.name, _dim(stmt.by))
        case With():
            return ("with", _mesh(stmt.own), _mesh(stmt.mesh), tuple(map(_stmt, stmt.body)))
        case For():
            ends = tuple(_dim(x) for x in (stmt.start, stmt.stop, stmt.step))
            return ("for", stmt.var.name, ends, stmt.unroll, tuple(map(_stmt, stmt.body)))
        case When():
            return ("when", _dim(stmt.test), tuple(map(_stmt, stmt.body)))


def _operand(operand: View | Scalar) -> Record:
    if isinstance(operand, Scalar):
        return ("scalar", _value(operand.value), operand.dtype.name)
    index = tuple(map(_dim, operand.index))
    return (
        ring_name(operand.buffer),
        operand.shape,
        index,
        _dim(operand.slot),
        _value(operand.fill),
    )


def _value(value: Any) -> Any:
    match value:
        case Expr():
            return _dim(value)
        case bool() | float():
            return repr(value)  # 1, 1.0 and True are different, nan is nan
        case tuple() | list():
            return tuple(_value(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        case Barrier():
            return ("barrier", value.name)
        case Buffer():
            return ("buffer", ring_name(value))
        case Axis():
            return ("axis", *_axis(value))
        case ShardLayout():
            return ("layout", _layout(value))
        case DType():
            return ("dtype", value.name)
    return value


def _dim(x: Dim) -> Any:
    """A sum as its terms in an order of their own."""
    if not isinstance(x, Expr):
        return x
    terms = ((tuple(sorted((_atom(a) for a in mono), key=repr)), coef) for mono, coef in x.terms)
    return ("sum", *sorted(terms, key=repr))


def _atom(atom: Atom) -> Record:
    match atom:
        case FloorDiv():
            return ("//", _dim(atom.num), _dim(atom.den))
        case Mod():
            return ("%", _dim(atom.num), _dim(atom.den))
        case MinMax():
            return (atom.name, *sorted((_dim(a) for a in atom.args), key=repr))
        case Coord():
            assert atom.axis is not None
            return ("coord", *_axis(atom.axis))
        case OpenDim():
            return ("dim", atom.name, atom.lo, atom.hi)
        case IterVar():
            return ("var", atom.name)
        case _:
            assert isinstance(atom, Sym)
            return (atom.kind, atom.name)


__all__ = ["record", "same"]
