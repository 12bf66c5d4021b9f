"""When a value is used for the last time, so that its memory can be given back."""

from __future__ import annotations

from typing import Any

from tilefoundry.ir.node import Block, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func


def last_uses(func: Func) -> dict[Any, list[Node]]:
    """Values to drop after each statement: those of its own block, used last in it."""
    out: dict[Any, list[Node]] = {}
    kept = set(func.returns.values)

    def visit(block: Block, inherited: set[Node]) -> set[Node]:
        used_after: set[Node] = set()
        for stmt in reversed(block.stmts):
            used = _uses(stmt, visit)
            for node in used - used_after - inherited - kept:
                out.setdefault(stmt, []).append(node)
            used_after |= used
        return used_after

    def _uses(stmt: Any, visit: Any) -> set[Node]:
        if isinstance(stmt, Node):
            return set(stmt.args)
        if isinstance(stmt, Return):
            return set(stmt.values)
        assert isinstance(stmt, (Scope, Loop))
        if isinstance(stmt, Scope):
            # values of a scope outlive it, so their end is found in the block around it
            return {n for s in stmt.body.stmts for n in _uses(s, visit)}
        ends = {n for c in stmt.carried for n in (c.init, c.head, c.step)}
        inside = {n for s in stmt.body.stmts for n in _uses(s, visit)}
        return inside | ends

    visit(func.body, set())
    return out
