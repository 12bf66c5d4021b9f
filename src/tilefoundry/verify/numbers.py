"""Index expressions as fast functions, and their periods.

An expression is *quasi-linear* in a loop's iteration number with ``(period, step)`` if after
``period`` more iterations its value has grown by exactly ``step``. Sums, floor divisions and
remainders by constants of such expressions are such again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilefoundry.ir.expr import Atom, Dim, Expr, FloorDiv, MinMax, Mod, Sym

Env: TypeAlias = list[int]
Fn: TypeAlias = Callable[[Env], int]
Linear: TypeAlias = tuple[int, int]


class Compiler:
    """Turns expressions into functions of one environment list; symbols get places in it."""

    def __init__(self) -> None:
        self.place: dict[Sym, int] = {}
        self._known: dict[Expr, Fn] = {}

    def at(self, sym: Sym) -> int:
        return self.place.setdefault(sym, len(self.place))

    def fn(self, x: Dim) -> Fn:
        """``x`` as a function of the environment."""
        if not isinstance(x, Expr):
            return lambda _, value=x: value
        found = self._known.get(x)
        if found is None:
            found = self._known[x] = eval(f"lambda e: {self._text(x)}")
        return found

    def fns(self, xs: Sequence[Dim]) -> tuple[Fn, ...]:
        return tuple(self.fn(x) for x in xs)

    def _text(self, x: Dim) -> str:
        if not isinstance(x, Expr):
            return str(x)
        return " + ".join(
            "*".join([str(c), *map(self._atom, mono)]) if c != 1 or not mono
            else "*".join(map(self._atom, mono))
            for mono, c in x.terms
        )  # fmt: skip

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Sym):
            return f"e[{self.at(atom)}]"
        if isinstance(atom, FloorDiv):
            return f"(({self._text(atom.num)}) // ({self._text(atom.den)}))"
        if isinstance(atom, Mod):
            return f"(({self._text(atom.num)}) % ({self._text(atom.den)}))"
        assert isinstance(atom, MinMax)
        return f"{atom.name}({', '.join(map(self._text, atom.args))})"


@dataclass(frozen=True)
class Motion:
    """How symbols move with one iteration: ``steps[sym]``; others stand still. ``values``
    are known constants."""

    steps: Mapping[Sym, int]
    values: Mapping[Sym, int]

    def of(self, x: Dim) -> Linear | None:
        """(period, step) of ``x``, None if it is not quasi-linear."""
        if not isinstance(x, Expr):
            return 1, 0
        parts = [self._product(mono, coef) for mono, coef in x.terms]
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            return None
        period = math.lcm(1, *(p for p, _ in known))
        return period, sum(step * (period // p) for p, step in known)

    def _product(self, mono: tuple[Atom, ...], coef: int) -> Linear | None:
        factors = [self._atom(a) for a in mono]
        if any(f is None for f in factors):
            return None
        growing = [n for n, f in enumerate(factors) if f is not None and f[1]]
        period = math.lcm(1, *(f[0] for f in factors if f is not None))
        if not growing:
            return period, 0
        for n, atom in enumerate(mono):
            if n != growing[0]:
                fixed = self._fixed(atom)
                if fixed is None:
                    return None
                coef *= fixed
        return factors[growing[0]][0], coef * factors[growing[0]][1]  # type: ignore[index]

    def _fixed(self, atom: Atom) -> int | None:
        return self.values.get(atom) if isinstance(atom, Sym) else None

    def _atom(self, atom: Atom) -> Linear | None:
        if isinstance(atom, Sym):
            return 1, self.steps.get(atom, 0)
        if isinstance(atom, MinMax):
            ends = [self.of(a) for a in atom.args]
            if any(end is None or end[1] for end in ends):
                return None
            return math.lcm(1, *(end[0] for end in ends if end is not None)), 0
        assert isinstance(atom, (FloorDiv, Mod))
        inner = self.of(atom.num)
        if inner is None:
            return None
        if not isinstance(atom.den, int):
            fixed = self.of(atom.den)
            return inner if fixed == (1, 0) and inner == (1, 0) else None
        period, step = inner
        factor = atom.den // math.gcd(atom.den, step)
        grown = step * factor
        return period * factor, (grown // atom.den if isinstance(atom, FloorDiv) else 0)


__all__ = ["Compiler", "Env", "Fn", "Linear", "Motion"]
