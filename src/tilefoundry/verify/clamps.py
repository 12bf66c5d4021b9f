"""Loop variables that stand in an index only clamped: ``max(step - 1, 0)``, as a pipeline has it.

What such a clamp takes are evenly spaced values, so it is a loop of its own with as many steps,
where its variable stands nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tilefoundry.ir.expr import Atom, Dim, Expr, IterVar, MinMax, Sym, product, symbols

Run: TypeAlias = tuple[int, int, int]
"""(first, distance, count) of evenly spaced values; the distance is positive."""


def loops_of_clamps(
    index: Sequence[Dim], loops: Mapping[Sym, Run]
) -> tuple[tuple[Dim, ...], dict[Sym, Run]]:
    """The index with clamps of one of ``loops``, the runs of their variables, as new variables,
    and their runs."""
    where = Counter(s for x in index for a in _atoms(x) for s in symbols(a.expr()))
    clamps = Counter(a for x in index for a in _atoms(x) if isinstance(a, MinMax))
    made: dict[Sym, Run] = {}
    known: dict[Atom, Dim] = {}
    for clamp, times in clamps.items():
        inside = symbols(clamp.expr())
        sym = next(iter(inside), None)
        if sym is None or len(inside) > 1 or sym not in loops or where[sym] != times:
            continue
        run = _run(clamp.expr(), sym, loops[sym])
        if run is not None:
            first, apart, count = run
            new = IterVar(f"{sym.name}''", 0, (count - 1) * apart, apart)
            made[new], known[clamp] = (0, apart, count), first + new.expr()
    if not made:
        return tuple(index), made
    return tuple(_exchanged(x, known) for x in index), made


def _atoms(x: Dim) -> list[Atom]:
    """The factors of a polynomial, each as often as it stands there."""
    return [a for mono, _ in x.terms for a in mono] if isinstance(x, Expr) else []


def _exchanged(x: Dim, known: Mapping[Atom, Dim]) -> Dim:
    if not isinstance(x, Expr):
        return x
    total: Dim = 0
    for mono, coef in x.terms:
        total = total + coef * product(known.get(a, a.expr()) for a in mono)
    return total


def _run(x: Dim, sym: Sym, given: Run) -> Run | None:
    """The values that ``x``, an expression in ``sym`` alone, takes over the values ``given``;
    None if they are not known to be evenly spaced."""
    if isinstance(x, int):
        return x, 1, 1
    total, found = 0, None
    for mono, coef in x.terms:
        if not mono:
            total += coef
            continue
        if found is not None or len(mono) != 1 or coef < 0:
            return None
        (atom,) = mono
        part = given if atom is sym else _clamped(atom, sym, given)
        if part is None:
            return None
        found = part[0] * coef, part[1] * coef, part[2]
    return (total + found[0], *found[1:]) if found else (total, 1, 1)


def _clamped(atom: Atom, sym: Sym, given: Run) -> Run | None:
    if not isinstance(atom, MinMax):
        return None
    ends = [a for a in atom.args if isinstance(a, int)]
    others = [a for a in atom.args if not isinstance(a, int)]
    run = _run(others[0], sym, given) if len(others) == 1 else None
    if run is None or not ends:
        return run
    first, apart, count = run
    last = first + (count - 1) * apart
    end = max(ends) if atom.name == "max" else min(ends)
    if atom.name == "max":
        if end <= first:
            return run
        first = end
    else:
        if end >= last:
            return run
        last = end
    if first >= last:
        return end, 1, 1
    # an end between two values would leave an uneven step
    return (first, apart, (last - first) // apart + 1) if (last - first) % apart == 0 else None


__all__ = ["Run", "loops_of_clamps"]
