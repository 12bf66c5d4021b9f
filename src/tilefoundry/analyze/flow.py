"""A function as numbered statements, with uses and the extents of loops by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Carried, Loop, Node, Return, Scope
from tilefoundry.ir.program import Func

VIEWS = frozenset({"slice", "local", "reshape", "transpose", "bitcast", "split"})
"""Operations that only re-index what is there: no bytes move until something reads them."""

UPDATES = {"insert_slice": 1, "index_add": 2, "index_copy": 2, "scatter_add": 2, "cache_update": 1}
"""Operations that write a part of their first operand, and the operand that is written."""

ADDS = frozenset({"index_add", "scatter_add"})
"""Updates that read what they overwrite."""


@dataclass(frozen=True, eq=False)
class Site:
    """One node where it stands: statement number, enclosing loops outermost first."""

    node: Node
    at: int
    nest: tuple[Loop, ...]

    @property
    def mesh(self) -> Mesh:
        return self.node.mesh


@dataclass(eq=False)
class Flow:
    """Statements of a function in order, with uses and loop extents by number."""

    sites: list[Site] = field(default_factory=list)
    site: dict[Node, Site] = field(default_factory=dict)
    loops: dict[Loop, tuple[int, int]] = field(default_factory=dict)
    nests: dict[Loop, tuple[Loop, ...]] = field(default_factory=dict)
    scopes: list[tuple[Scope, tuple[Loop, ...]]] = field(default_factory=list)
    uses: dict[Node, list[Site]] = field(default_factory=dict)
    carried: list[tuple[Loop, Carried]] = field(default_factory=list)
    returned: tuple[Node, ...] = ()
    end: int = 0


def flow(func: Func) -> Flow:
    """Number the statements of ``func``; iterative, linear in the program."""
    out = Flow()
    for param in func.params:
        out.site[param] = Site(param, 0, ())
    nest: tuple[Loop, ...] = ()
    stack: list[tuple[Iterator[object], tuple[Loop, ...], Loop | None]] = []
    stack.append((iter(func.body.stmts), (), None))
    at = 0
    while stack:
        items, nest, owner = stack[-1]
        stmt = next(items, None)
        if stmt is None:
            stack.pop()
            if owner is not None:
                at += 1
                out.loops[owner] = (out.loops[owner][0], at)
                for c in owner.carried:
                    out.site[c.result] = Site(c.result, at, stack[-1][1])
            continue
        if isinstance(stmt, Node):
            at += 1
            made = Site(stmt, at, nest)
            out.sites.append(made)
            out.site[stmt] = made
            for arg in stmt.args:
                out.uses.setdefault(arg, []).append(made)
        elif isinstance(stmt, Scope):
            out.scopes.append((stmt, nest))
            stack.append((iter(stmt.body.stmts), nest, None))
        elif isinstance(stmt, Loop):
            at += 1
            inner = (*nest, stmt)
            out.loops[stmt] = (at, at)
            out.nests[stmt] = nest
            for c in stmt.carried:
                out.site[c.head] = Site(c.head, at, inner)
                out.carried.append((stmt, c))
            stack.append((iter(stmt.body.stmts), inner, stmt))
        elif isinstance(stmt, Return):
            out.returned = stmt.values
    out.returned = out.returned or func.returns.values
    out.end = at + 1
    return out
