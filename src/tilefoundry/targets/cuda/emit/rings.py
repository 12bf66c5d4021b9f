"""Slots and phases of rings, counted along a loop instead of divided out in every turn.

Between the end of one step and the load of the next lies the division of the running count by
the number of slots; a loader that refills three slots waits for it on the critical path
(measured on a GEMM of the H200: 2.4 % of its cycles).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilefoundry.ir.expr import Dim, Expr, Mod, floordiv, mod, substitute, symbols
from tilefoundry.targets.cuda.emit.scopes import straight
from tilefoundry.tir.program import Advance, Counter, For, Issue, Stmt, Sync, views, walk


@dataclass(frozen=True)
class Ring:
    """A running ``count`` that grows by one in every turn of a loop, and the expressions of a
    body that are ``(count + ahead) % slots`` or ``(count / slots + later) % 2``."""

    count: Dim
    slots: int
    ahead: tuple[tuple[Dim, int], ...]
    later: tuple[tuple[Dim, int], ...]

    def first(self, loop: For) -> tuple[Dim, Dim]:
        """Slot and phase of the first turn."""
        begin = substitute(self.count, {loop.var: loop.start})
        return mod(begin, self.slots), mod(floordiv(begin, self.slots), 2)


def rings(loop: For, body: tuple[Stmt, ...]) -> list[Ring]:
    """The rings that ``body``, what some threads do in a turn of ``loop``, goes round.

    With a power of two of slots a division is a shift, and nothing is gained.
    """
    if loop.unroll or not isinstance(loop.step, int):
        return []
    moved = {s.counter for s, _ in walk(loop.body) if isinstance(s, Advance)}
    indices = list(dict.fromkeys(_indices(body)))
    found: dict[tuple[Dim, int], dict[Dim, int]] = {}
    for x in indices:
        going = _slot(x)
        if going is not None and _counts(going[0], loop, moved):
            count, ahead, slots = going
            found.setdefault((count, slots), {})[x] = ahead
    out: list[Ring] = []
    for (bare, slots), ahead in found.items():
        begins = sorted(set(ahead.values()))
        phases = {n: _phases(indices, bare + n, slots) for n in begins}
        begin = max(begins, key=lambda n: len(phases[n]))
        steps = {x: (n - begin) % slots for x, n in ahead.items()}
        out.append(Ring(bare + begin, slots, tuple(steps.items()), tuple(phases[begin].items())))
    return out


def _indices(body: tuple[Stmt, ...]) -> Iterator[Dim]:
    for stmt in straight(body):
        if isinstance(stmt, Sync):
            yield from (stmt.slot, stmt.parity)
        elif isinstance(stmt, Issue):
            yield from (v.slot for v in views(stmt))


def _one(x: Dim) -> object:
    """The only factor that an expression is."""
    if isinstance(x, Expr) and len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        return x.terms[0][0][0]
    return None


def _constant(x: Dim) -> int:
    """What is added to an expression."""
    return sum(c for mono, c in x.terms if not mono) if isinstance(x, Expr) else x


def _slot(x: Dim) -> tuple[Dim, int, int] | None:
    """(count, ahead, slots) of ``(count + ahead) % slots``."""
    atom = _one(x)
    if not isinstance(atom, Mod) or not isinstance(atom.den, int):
        return None
    if atom.den < 3 or not atom.den & (atom.den - 1):
        return None
    ahead = _constant(atom.num)
    return atom.num - ahead, ahead % atom.den, atom.den


def _phases(indices: list[Dim], count: Dim, slots: int) -> dict[Dim, int]:
    """``later`` of each index that is ``(count / slots + later) % 2``."""
    out: dict[Dim, int] = {}
    for x in indices:
        atom = _one(x)
        if isinstance(atom, Mod) and atom.den == 2:
            later = mod(atom.num - floordiv(count, slots), 2)
            if isinstance(later, int):
                out[x] = later
    return out


def _counts(count: Dim, loop: For, moved: set[Counter]) -> bool:
    """Whether ``count`` grows by one in every turn."""
    if not isinstance(count, Expr) or symbols(count) & moved:
        return False
    return substitute(count, {loop.var: loop.var.expr() + loop.step}) - count == 1
