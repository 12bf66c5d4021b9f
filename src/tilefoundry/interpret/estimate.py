"""How long an execution of a kernel will take, before it begins: steps of warps and elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilefoundry.interpret.kernel import Kernel, kernel_of
from tilefoundry.interpret.place import value
from tilefoundry.ir.expr import Dim, Expr, Sym
from tilefoundry.ir.mesh import Coord, Mesh
from tilefoundry.tir.program import (
    For,
    Issue,
    PrimFunc,
    Program,
    Stmt,
    Sync,
    View,
    When,
    With,
)

STEP, ELEMENT = 1.0e-4, 2.0e-7
"""Seconds of one step of a warp, and of one element that it writes, on the slower of the machines
that this was measured on."""
FEW = 5
"""CTAs that are looked at; the others do as much."""


def seconds(program: Program) -> float:
    """About how long executing all launches of ``program`` once takes, in seconds; kernels are
    not verified for it, and conditions count as met."""
    return sum(_kernel(program.kernels[launch.kernel]) for launch in program.launches)


def _kernel(func: PrimFunc) -> float:
    kernel = kernel_of(func)
    count = kernel.units.ctas
    chosen = sorted({n * (count - 1) // max(1, FEW - 1) for n in range(FEW)})
    each = [_block(kernel, func.body, kernel.outside, cta, {}) for cta in chosen]
    return sum(each) * count / len(chosen)


def _block(
    kernel: Kernel, stmts: Sequence[Stmt], mesh: Mesh, cta: int, env: dict[Sym, Any]
) -> float:
    return sum(_stmt(kernel, stmt, mesh, cta, env) for stmt in stmts)


def _stmt(kernel: Kernel, stmt: Stmt, mesh: Mesh, cta: int, env: dict[Sym, Any]) -> float:
    match stmt:
        case Issue() | Sync():
            warps = kernel.units.lanes(mesh, cta)
            touched = _elements(stmt, sum(w.bit_count() for w in warps))
            return sum(map(bool, warps)) * STEP + touched * ELEMENT
        case With():
            return _block(kernel, stmt.body, stmt.mesh, cta, env)
        case When():
            return _block(kernel, stmt.body, mesh, cta, env)
        case For():
            start, stop, step = (
                _value(kernel, x, cta, env) for x in (stmt.start, stmt.stop, stmt.step)
            )
            trips = max(0, -((start - stop) // step))
            inside = {**env, stmt.var: start + trips // 2 * step}
            return trips * _block(kernel, stmt.body, mesh, cta, inside) if trips else 0.0
    return 0.0


def _elements(stmt: Issue | Sync, threads: int) -> float:
    """The elements that the threads of one CTA touch."""
    if isinstance(stmt, Sync):
        return 0.0
    views = [v for v in (*stmt.reads, *stmt.writes) if isinstance(v, View)]
    held = [v for v in views if v.storage == "rmem"]
    return max((_touched(v, threads) for v in held or views), default=0.0)


def _touched(view: View, threads: int) -> float:
    """Those of one operand; what is repeated along an axis is there once."""
    buffer = view.buffer
    count = min(prod(view.shape), prod(buffer.shape))
    if buffer.storage != "rmem":
        return count
    holders = prod(d.axis.extent for d in buffer.type.digits if d.axis in buffer.mesh.axes)
    return count * threads / holders


def _value(kernel: Kernel, x: Dim, cta: int, env: dict[Sym, Any]) -> int:
    """An index for the first thread of a CTA; a symbol that is not known counts as 0."""
    if not isinstance(x, Expr):
        return x
    known: dict[Sym, Any] = {}
    for sym in kernel.symbols(x):
        if sym in env:
            known[sym] = env[sym]
        elif isinstance(sym, Coord) and sym.axis is not None:
            known[sym] = max(0, int(kernel.units.coordinate(sym.axis, cta, 0)))
        else:
            known[sym] = 0
    return int(value(x, known))
