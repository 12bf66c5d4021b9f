"""Which threads execute what, so that warps with different work get code of their own.

Register budgets hold for code that only one kind of warp reaches: a loop that all warps
share would keep the sums of some of them alive in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilefoundry.ir.mesh import Mesh
from tilefoundry.tir.effects import effects
from tilefoundry.tir.program import Advance, For, Issue, Stmt, Sync, When, With

if TYPE_CHECKING:
    from tilefoundry.targets.cuda.emit.kernel import Kernel

WARP = 32
ELECTED = ("init", "fence_init", "expect", "bulk_commit", "bulk_wait")
Threads = frozenset[int]


def elected(stmt: Stmt) -> bool:
    """One thread executes it for all participants."""
    if isinstance(stmt, Sync):
        return stmt.kind in ELECTED
    return isinstance(stmt, Issue) and effects(stmt).elected


def threads_of(k: Kernel, mesh: Mesh) -> Threads:
    return frozenset(mesh.units("thread")) if mesh.at("thread") else frozenset(range(k.threads))


def _leaves(k: Kernel, stmt: Stmt, mesh: Mesh) -> Iterator[tuple[Stmt, Threads]]:
    if isinstance(stmt, With):
        for inner in stmt.body:
            yield from _leaves(k, inner, stmt.mesh)
    elif isinstance(stmt, (For, When)):
        for inner in stmt.body:
            yield from _leaves(k, inner, mesh)
    else:
        yield stmt, threads_of(k, mesh)


def restricted(k: Kernel, stmts: tuple[Stmt, ...], mesh: Mesh, active: Threads) -> tuple[Stmt, ...]:
    """Of ``stmts`` what some thread of ``active`` executes."""
    out: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, (With, For, When)):
            here = stmt.mesh if isinstance(stmt, With) else mesh
            body = restricted(k, stmt.body, here, active)
            if body:
                out.append(stmt if len(body) == len(stmt.body) and all(
                    a is b for a, b in zip(body, stmt.body, strict=True)
                ) else replace(stmt, body=body))  # fmt: skip
        elif threads_of(k, mesh) & active:
            out.append(stmt)
    return tuple(out)


def spans(k: Kernel, stmt: Stmt) -> bool:
    """A scope that all active threads enter."""
    return isinstance(stmt, With) and threads_of(k, stmt.mesh) >= k.active


def components(k: Kernel, stmts: tuple[Stmt, ...], mesh: Mesh, active: Threads) -> list[Threads]:
    """``active`` in parts that ``stmts`` may be written for apart; one part where the first
    statement is common to all, or where they work together later."""
    first = [x & active for _, x in _leaves(k, stmts[0], mesh)]
    if all(x >= active for x in first):
        return [active]
    parts: list[Threads] = []
    for stmt, mine in (x for s in stmts for x in _leaves(k, s, mesh)):
        mine = mine & active
        if mine >= active:
            if isinstance(stmt, Issue) and not elected(stmt):
                return [active]
            if isinstance(stmt, Sync) and stmt.kind in ("registers",):
                return [active]
            continue
        if not mine or isinstance(stmt, Advance):
            continue
        joined = frozenset[int]().union(mine, *(p for p in parts if p & mine))
        parts = [*(p for p in parts if not p & mine), joined]
    rest = active - frozenset[int]().union(*parts)
    if rest:
        parts.append(rest)
    parts.sort(key=min)
    return parts if all(_warps(p) for p in parts) else [active]


def _warps(threads: Threads) -> bool:
    """Whole warps, one after the other."""
    low, high = min(threads), max(threads) + 1
    return low % WARP == 0 and high % WARP == 0 and len(threads) == high - low


def test(k: Kernel, part: Threads) -> str:
    """What tells the threads of ``part`` from the others of ``k.active``."""
    low, high = min(part), max(part) + 1
    if len(part) != high - low:
        steps = sorted(part)
        k.form(None, f"threads {steps[:4]} ...", "they are not one after the other",
               "arrange the scope so that its threads follow each other")  # fmt: skip
    around = min(k.active), max(k.active) + 1
    unit, size = ("warp", WARP) if low % WARP == 0 and high % WARP == 0 else ("tid", 1)
    if high - low == size:
        return f"{unit} == {low // size}"
    tests = [f"{unit} >= {low // size}"] if low > around[0] else []
    tests += [f"{unit} < {high // size}"] if high < around[1] else []
    return " && ".join(tests) or "true"
