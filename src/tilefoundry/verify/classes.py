"""Blocks, or clusters of blocks, that run alike: one of each kind is verified."""

from __future__ import annotations

from tilefoundry.ir.expr import Expr, symbols
from tilefoundry.ir.mesh import Coord
from tilefoundry.tir.program import For, Stmt, When, With
from tilefoundry.verify.cluster import Block, together
from tilefoundry.verify.finding import Findings
from tilefoundry.verify.numbers import Compiler, Env
from tilefoundry.verify.roles import UNIT, Layout, control, coordinate

KINDS = 16
"""Kinds of blocks that are run."""
ROUNDS = (0, 1, 2)


def classes(layout: Layout, compiler: Compiler, findings: Findings) -> list[tuple[Block, ...]]:
    """The blocks of one cluster of each kind, or one block where they have nothing to do with
    each other. Two blocks are of a kind if the loops, tests, slots and parities that depend
    on the block agree in the first rounds, and all trip counts do."""
    groups = together(layout)
    outer = [c for c in layout.coords if c.axis is not None and c.axis.level != UNIT]
    scopes = _scopes(layout)
    if not scopes and not any(_depends(x) for s in layout.sites for x in control(s)):
        return groups[:1]
    kinds: dict[tuple[object, ...], tuple[Block, ...]] = {}
    program = _Program(layout, compiler)
    for blocks in groups:
        key: list[object] = []
        for block in blocks:
            env: Env = [0] * (len(compiler.place) + 1)
            for c in outer:
                assert c.axis is not None
                env[compiler.at(c)] = coordinate(c.axis, block.get(c.axis.level, 0))
            key += [tuple(layout.inside(s.mesh, block) for s in scopes), program.key(env)]
        kinds.setdefault(tuple(key), blocks)
    found = list(kinds.values())
    if len(found) <= KINDS:
        return found
    findings.note(f'undecided blocks={len(found) - KINDS} property="synchronisation" '
                  f"kinds={len(found)} run={KINDS}")  # fmt: skip
    half = KINDS // 2
    return [*found[:half], *found[-half:]]


def _scopes(layout: Layout) -> list[With]:
    """Scopes that not all blocks enter."""
    return [s for s in layout.sites if isinstance(s, With) and not layout.covers(s.mesh)]


def _depends(x: object) -> bool:
    return isinstance(x, Expr) and any(
        isinstance(s, Coord) and s.axis is not None and s.axis.level != UNIT for s in symbols(x)
    )


class _Program:
    """The expressions of a kernel that depend on the block, in program order."""

    def __init__(self, layout: Layout, compiler: Compiler) -> None:
        for c in layout.coords:
            compiler.at(c)
        self.steps = self._steps(layout.func.body, compiler)
        # all places are given out now
        self.size = len(compiler.place)

    def _steps(self, body: tuple[Stmt, ...], compiler: Compiler):
        out = []
        for stmt in body:
            if isinstance(stmt, For):
                fns = compiler.fns((stmt.start, stmt.stop, stmt.step))
                out.append((compiler.at(stmt.var), fns, self._steps(stmt.body, compiler)))
                continue
            mine = compiler.fns([x for x in control(stmt) if _depends(x)])
            if mine:
                out.append((None, mine, isinstance(stmt, When)))
            if isinstance(stmt, (With, When)):
                out += self._steps(stmt.body, compiler)
        return tuple(out)

    def key(self, env: Env) -> tuple[object, ...]:
        env += [0] * (self.size + 1 - len(env))
        return tuple(x for n in ROUNDS for x in self._values(self.steps, env, n))

    def _values(self, steps, env: Env, number: int) -> list[int]:
        out: list[int] = []
        for place, fns, inner in steps:
            if place is None:
                # of a test only its truth matters
                out += [f(env) > 0 for f in fns] if inner else [f(env) for f in fns]
                continue
            start, stop, step = (f(env) for f in fns)
            trips = len(range(start, stop, step))
            out.append(trips)
            env[place] = start + step * min(number, max(trips - 1, 0))
            out += self._values(inner, env, number)
        return out


__all__ = ["classes"]
