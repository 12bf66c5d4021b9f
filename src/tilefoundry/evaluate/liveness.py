"""When a value is used for the last time, so that its memory can be given back."""

from __future__ import annotations

from tilefoundry.ir.node import Block, Loop, Node, Return, Scope, Stmt
from tilefoundry.ir.program import Func


def last_uses(func: Func) -> dict[Stmt, list[Node]]:
    """Values to drop after each statement of the function's own block: those used last in it."""
    out: dict[Stmt, list[Node]] = {}
    used_after = set(func.returns.values)
    for stmt in reversed(func.body.stmts):
        used = _uses(stmt)
        if ends := used - used_after:
            out[stmt] = list(ends)
        used_after |= used
    return out


def _uses(stmt: Stmt) -> set[Node]:
    if isinstance(stmt, Node):
        return set(stmt.args)
    if isinstance(stmt, Return):
        return set(stmt.values)
    inside = _within(stmt.body)
    if isinstance(stmt, Scope):
        return inside
    assert isinstance(stmt, Loop)
    return inside | {n for c in stmt.carried for n in (c.init, c.head, c.step)}


def _within(block: Block) -> set[Node]:
    return {n for stmt in block.stmts for n in _uses(stmt)}
