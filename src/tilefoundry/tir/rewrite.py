"""Rebuilding TIR with some of its parts replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tilefoundry.tir.program import (
    Barrier,
    Buffer,
    For,
    Issue,
    Operand,
    PrimFunc,
    Stmt,
    Sync,
    View,
    When,
    With,
)

Change: TypeAlias = Callable[[Stmt], Iterable[Stmt]]


def mapped(body: tuple[Stmt, ...], change: Change) -> tuple[Stmt, ...]:
    """``body`` with each statement replaced by what ``change`` makes of it, innermost first;
    scopes, loops and tests that become empty are dropped."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, (With, For, When)):
            inner = mapped(stmt.body, change)
            if not inner:
                continue
            if len(inner) != len(stmt.body) or any(
                a is not b for a, b in zip(inner, stmt.body, strict=True)
            ):
                stmt = replace(stmt, body=inner)
        out += change(stmt)
    return tuple(out)


def rebuild(
    func: PrimFunc,
    buffers: Mapping[Buffer, Buffer] | None = None,
    barriers: Mapping[Barrier, Barrier] | None = None,
) -> PrimFunc:
    """``func`` with buffers and barriers replaced wherever they are used."""
    new, bars = buffers or {}, barriers or {}

    def view(x: View) -> View:
        return replace(x, buffer=new[x.buffer]) if x.buffer in new else x

    def operand(x: Operand) -> Operand:
        return view(x) if isinstance(x, View) else x

    def attribute(x: object) -> object:
        if isinstance(x, Barrier):
            return bars.get(x, x)
        return new.get(x, x) if isinstance(x, Buffer) else x

    def change(stmt: Stmt) -> Iterable[Stmt]:
        if isinstance(stmt, Issue):
            attrs = {k: attribute(v) for k, v in stmt.attrs.items()}
            reads, writes = map(operand, stmt.reads), map(view, stmt.writes)
            return (replace(stmt, reads=tuple(reads), writes=tuple(writes), attrs=attrs),)
        if isinstance(stmt, Sync) and stmt.barrier is not None and stmt.barrier in bars:
            return (replace(stmt, barrier=bars[stmt.barrier]),)
        return (stmt,)

    return replace(
        func,
        params=tuple(new.get(b, b) for b in func.params),
        buffers=tuple(new.get(b, b) for b in func.buffers),
        barriers=tuple(bars.get(b, b) for b in func.barriers),
        body=mapped(func.body, change),
    )
