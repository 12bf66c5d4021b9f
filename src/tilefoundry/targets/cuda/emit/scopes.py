"""Where a thread's arrays are declared, and counters of loops' turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, Mod, Sym, bounds, floordiv, mod
from tilefoundry.tir.program import Buffer, For, Issue, Stmt, Sync, View, When, With, views


class Arrays:
    """Which statements use which arrays of a thread."""

    def __init__(self) -> None:
        self._used: dict[Stmt, frozenset[Buffer]] = {}

    def used(self, stmt: Stmt) -> frozenset[Buffer]:
        """The arrays that a statement uses."""
        if stmt not in self._used:
            if isinstance(stmt, (With, For, When)):
                found = frozenset[Buffer]().union(*(self.used(s) for s in stmt.body))
            else:
                found = frozenset(v.buffer for v in views(stmt) if v.storage == "rmem")
            self._used[stmt] = found
        return self._used[stmt]

    def begins(self, stmt: Stmt, buffer: Buffer) -> bool | None:
        """Whether what comes first writes a buffer whole (True) or reads it (False); None
        where it is not used."""
        if isinstance(stmt, (With, For, When)):
            for inner in stmt.body:
                if buffer in self.used(inner):
                    found = self.begins(inner, buffer)
                    return found is True and not isinstance(inner, When)
            return None
        if not isinstance(stmt, Issue) or any(
            isinstance(r, View) and r.buffer is buffer for r in stmt.reads
        ):
            return False
        return any(w.buffer is buffer and w.is_whole for w in stmt.writes)


def steps(body: tuple[Stmt, ...]) -> list[tuple[str, Dim]]:
    """Slots and phases that more than one statement of a loop's body names, as (what it is,
    expression); statements of loops inside count for those."""
    seen: Counter[tuple[str, Dim]] = Counter()
    for stmt in straight(body):
        if isinstance(stmt, Sync):
            seen.update({("slot", stmt.slot): 1, ("phase", stmt.parity): 1})
        elif isinstance(stmt, Issue):
            slots = {v.slot for v in views(stmt)} | {stmt.attrs.get("slot", 0)}
            seen.update({("slot", s): 1 for s in slots})
    return [x for x, count in seen.items() if count > 1 and isinstance(x[1], Expr)]


def straight(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """The statements of a body that are in no loop of their own."""
    for stmt in body:
        if isinstance(stmt, (With, When)):
            yield from straight(stmt.body)
        elif not isinstance(stmt, For):
            yield stmt


class Turns:
    """Loops that start at no constant: their bodies divide by the step what the loop has gone
    through, which a counter of turns says at once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Dim, int], Sym] = {}

    def of(self, stmt: For, name: str) -> Sym | None:
        """The counter of a loop whose variable is called ``name``."""
        if isinstance(stmt.start, int) or not isinstance(stmt.step, int):
            return None
        key = (stmt.var.expr() - stmt.start, stmt.step)
        most = max(0, bounds(stmt.stop)[1] - bounds(stmt.start)[0]) // stmt.step + 1
        self._known[key] = Sym(f"{name}_turn", 0, most)
        return self._known[key]

    def replaced(self, x: Dim) -> Dim:
        """``x`` with counters for what they count."""
        if not self._known or not isinstance(x, Expr):
            return x
        total: Dim = 0
        for mono, coef in x.terms:
            value: Dim = coef
            for atom in mono:
                value = value * self._atom(atom)
            total = total + value
        return total

    def _atom(self, atom: Atom) -> Dim:
        if isinstance(atom, FloorDiv):
            if isinstance(atom.den, int) and (atom.num, atom.den) in self._known:
                return self._known[atom.num, atom.den].expr()
            return floordiv(self.replaced(atom.num), self.replaced(atom.den))
        if isinstance(atom, Mod):
            return mod(self.replaced(atom.num), self.replaced(atom.den))
        return atom.expr()
