"""Symbolic integers: extents and index arithmetic.

An :class:`Expr` is a polynomial over atoms in canonical form, so that equal sums
compare equal. Atoms are symbols (open extents, loop variables, mesh coordinates,
iteration variables) and quasi-affine terms (floor division, modulo, min, max).
Constants collapse to ``int``: a :data:`Dim` is ``int | Expr``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

Bound: TypeAlias = int | float  # float only for ±infinity
Key: TypeAlias = tuple[str, str, int, str]
"""Order of atoms: kind, name, then what tells namesakes apart."""

_uid = itertools.count()


class Atom:
    """An indivisible factor of a monomial; ordered by ``key``."""

    key: Key

    def bounds(self) -> tuple[Bound, Bound]:
        raise NotImplementedError

    def expr(self) -> Expr:
        return Expr((((self,), 1),))


@dataclass(frozen=True, eq=False)
class Sym(Atom):
    """A symbol with inclusive bounds; two symbols are the same object or differ."""

    name: str
    lo: Bound = 0
    hi: Bound = math.inf
    multiple: int = 1
    """Every value is a multiple of this."""
    uid: int = field(default_factory=lambda: next(_uid))

    kind = "sym"

    @property
    def key(self) -> Key:  # type: ignore[override]
        return (self.kind, self.name, self.uid, "")

    def bounds(self) -> tuple[Bound, Bound]:
        return self.lo, self.hi

    def __repr__(self) -> str:
        return self.name


class LoopVar(Sym):
    """The variable of one loop; identity distinguishes loops of the same name."""

    kind = "loop"


class IterVar(Sym):
    """A dimension of an operation's iteration space."""

    kind = "iter"


@dataclass(frozen=True, eq=False)
class OpenDim(Sym):
    """An open extent (``DimVar``): the same name and range is the same symbol."""

    kind = "dim"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenDim) and (self.name, self.lo, self.hi) == (
            other.name,
            other.lo,
            other.hi,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.lo, self.hi))

    @property
    def key(self) -> Key:  # type: ignore[override]
        return ("dim", self.name, 0, f"{self.lo} {self.hi}")


@dataclass(frozen=True)
class FloorDiv(Atom):
    num: Expr
    den: Dim

    @cached_property
    def key(self) -> Key:  # type: ignore[override]
        return ("~div", f"{self.num}//{self.den}", 0, _told_apart(self.num, self.den))

    def bounds(self) -> tuple[Bound, Bound]:
        (lo, hi), (dlo, dhi) = bounds(self.num), bounds(self.den)
        if dlo <= 0:
            return -math.inf, math.inf
        ends = [_floor(n, d) for n in (lo, hi) for d in (dlo, dhi)]
        return min(ends), max(ends)


@dataclass(frozen=True)
class Mod(Atom):
    num: Expr | int
    den: Dim

    @cached_property
    def key(self) -> Key:  # type: ignore[override]
        return ("~mod", f"{self.num}%{self.den}", 0, _told_apart(self.num, self.den))

    def bounds(self) -> tuple[Bound, Bound]:
        lo, hi = bounds(self.num)
        dlo, dhi = bounds(self.den)
        if dlo <= 0:
            return -math.inf, math.inf
        return 0, min(dhi - 1, hi) if lo >= 0 else dhi - 1


@dataclass(frozen=True)
class MinMax(Atom):
    name: str  # "min" or "max"
    args: tuple[Dim, ...]

    @cached_property
    def key(self) -> Key:  # type: ignore[override]
        return ("~" + self.name, ",".join(map(str, self.args)), 0, _told_apart(*self.args))

    def bounds(self) -> tuple[Bound, Bound]:
        pick = min if self.name == "min" else max
        ends = [bounds(a) for a in self.args]
        return pick(e[0] for e in ends), pick(e[1] for e in ends)


Mono: TypeAlias = tuple[Atom, ...]


def _told_apart(*parts: Dim) -> str:
    """Text in which symbols of one name differ."""
    return " ".join(render(x, lambda s: str(s.key)) for x in parts)


def _floor(n: Bound, d: Bound) -> Bound:
    if math.isinf(d):
        return 0 if n >= 0 else -1
    return n if math.isinf(n) else n // d


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b


@dataclass(frozen=True)
class Expr:
    """A polynomial: monomials with integer coefficients, constant under ``()``."""

    terms: tuple[tuple[Mono, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: object) -> Dim:
        return _sum((self, other)) if _is_dim(other) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Expr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: object) -> Dim:
        return _sum((self, -other)) if _is_dim(other) else NotImplemented  # type: ignore[operator]

    def __rsub__(self, other: object) -> Dim:
        return _sum((other, -self)) if _is_dim(other) else NotImplemented

    def __mul__(self, other: object) -> Dim:
        return _product(self, other) if _is_dim(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Dim:
        return floordiv(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: object) -> Dim:
        return floordiv(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: object) -> Dim:
        return mod(self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: object) -> Dim:
        return mod(other, self) if _is_dim(other) else NotImplemented

    def __bool__(self) -> bool:
        lo, hi = bounds(self)
        if lo > 0 or hi < 0:
            return True
        raise TypeError(f"the truth of {self} is not known")

    def __repr__(self) -> str:
        return render(self)


Dim: TypeAlias = int | Expr


def _is_dim(x: object) -> bool:
    return isinstance(x, (Expr, int)) and not isinstance(x, bool)


def _make(terms: Mapping[Mono, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda t: (not t[0], tuple(a.key for a in t[0])))
    return Expr(tuple(kept))


def _terms(x: Dim) -> Iterable[tuple[Mono, int]]:
    return x.terms if isinstance(x, Expr) else (((), x),)


def _sum(parts: Iterable[object]) -> Dim:
    acc: dict[Mono, int] = {}
    for part in parts:
        for mono, coef in _terms(part):  # type: ignore[arg-type]
            acc[mono] = acc.get(mono, 0) + coef
    return _make(acc)


def _product(a: object, b: object) -> Dim:
    acc: dict[Mono, int] = {}
    for m, c in _terms(a):  # type: ignore[arg-type]
        for n, d in _terms(b):  # type: ignore[arg-type]
            mono = tuple(sorted(m + n, key=lambda x: x.key)) if m and n else m + n
            acc[mono] = acc.get(mono, 0) + c * d
    return _make(acc)


def product(dims: Iterable[Dim]) -> Dim:
    """Product of extents; 1 for none."""
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


def bounds(x: Dim) -> tuple[Bound, Bound]:
    """Inclusive bounds by interval arithmetic: sound, not always tight."""
    if not isinstance(x, Expr):
        return x, x
    lo: Bound = 0
    hi: Bound = 0
    for mono, coef in x.terms:
        mlo, mhi = _mono_bounds(mono)
        ends = (_times(mlo, coef), _times(mhi, coef))
        lo, hi = lo + min(ends), hi + max(ends)
    return lo, hi


def _mono_bounds(mono: Mono) -> tuple[Bound, Bound]:
    lo: Bound = 1
    hi: Bound = 1
    for atom, run in itertools.groupby(mono):
        alo, ahi = atom.bounds()
        power = len(list(run))
        ends = (alo**power, ahi**power)
        flo, fhi = min(ends), max(ends)
        if power % 2 == 0 and alo <= 0 <= ahi:
            flo = 0
        corners = [_times(x, y) for x in (lo, hi) for y in (flo, fhi)]
        lo, hi = min(corners), max(corners)
    return lo, hi


MOST_CORNERS = 8
"""Atoms whose ends :func:`extremes` tries together: 256 combinations."""


def extremes(x: Dim) -> tuple[Bound, Bound]:
    """Inclusive bounds in which an atom that occurs several times has one value throughout: exact
    where atoms are independent. As :func:`bounds` where an atom is squared or open, or where there
    are too many."""
    loose = bounds(x)
    if not isinstance(x, Expr):
        return loose
    # a polynomial that is linear in each atom has its extremes where every atom is at an end
    found = list(dict.fromkeys(a for mono, _ in x.terms for a in mono))
    ends = [a.bounds() for a in found]
    squared = any(len(set(mono)) < len(mono) for mono, _ in x.terms)
    if squared or len(found) > MOST_CORNERS or not all(math.isfinite(e) for p in ends for e in p):
        return loose
    values: list[Bound] = []
    for corner in itertools.product(*ends):
        at = dict(zip(found, corner, strict=True))
        values.append(sum(c * math.prod(at[a] for a in mono) for mono, c in x.terms))
    return max(loose[0], min(values)), min(loose[1], max(values))


def _unit(mono: Mono) -> int:
    """A divisor of every value of the monomial."""
    return math.prod(a.multiple for a in mono if isinstance(a, Sym))


def multiple_of(x: Dim) -> int:
    """A positive integer that divides every value of ``x`` (0 for the constant 0)."""
    return math.gcd(*(c * _unit(m) for m, c in _terms(x)))


def _divide_exact(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is one monomial that divides every term of a, else None."""
    (mono, coef), *rest = _terms(b)
    if rest:
        return None if a != b else 1
    out: dict[Mono, int] = {}
    for m, c in _terms(a):
        left = list(m)
        for atom in mono:
            if atom not in left:
                return None
            left.remove(atom)
        if c % coef:
            return None
        out[tuple(left)] = c // coef
    return _make(out)


def floordiv(a: object, b: object) -> Dim:
    """Floor division; exact parts are divided out, the rest stays one atom."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    num, den = _dim(a), _dim(b)
    if num == 0 or den == 1:
        return num
    exact = _divide_exact(num, den) if bounds(den)[0] > 0 else None
    if exact is not None:
        return exact
    if not isinstance(den, int):
        lo, hi = bounds(num)
        return 0 if lo >= 0 and bounds(den - num)[0] > 0 and hi >= 0 else _atom(num, den, FloorDiv)
    if den == 0:
        raise ZeroDivisionError("extent divided by zero")
    if den < 0:
        return floordiv(-num, -den)
    whole, rest = _split(num, den)
    lo, hi = bounds(rest)
    if lo >= 0 and hi < den:
        return whole
    steps, small = _steps(rest, den)
    if steps != 0 and small != 0 and _digit(small, den):
        return whole + floordiv(steps, den)
    if isinstance(rest, Expr) and len(rest.terms) == 1:
        (mono, coef) = rest.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], FloorDiv):
            inner = mono[0]
            if isinstance(inner.den, int) and inner.den > 0:
                return whole + floordiv(inner.num, inner.den * den)
    common = math.gcd(den, *(c for _, c in _terms(rest)))
    if common > 1:
        return whole + floordiv(_make({m: c // common for m, c in _terms(rest)}), den // common)
    return whole + _atom(rest, den, FloorDiv)


def mod(a: object, b: object) -> Dim:
    """Modulo of the same sign as ``b`` (Python's), with exact parts dropped."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    num, den = _dim(a), _dim(b)
    if den == 1 or num == 0:
        return 0
    if not isinstance(den, int):
        if bounds(den)[0] > 0 and _divide_exact(num, den) is not None:
            return 0
        if bounds(num)[0] >= 0 and bounds(den - num)[0] > 0:
            return num
        return _atom(num, den, Mod)
    if den <= 0:
        return num - floordiv(num, den) * den
    if multiple_of(num) % den == 0:
        return 0
    _, rest = _split(num, den)
    lo, hi = bounds(rest)
    if lo >= 0 and hi < den:
        return rest
    _, small = _steps(rest, den)
    if _digit(small, den):
        return small
    if isinstance(rest, Expr) and len(rest.terms) == 1:
        (mono, coef) = rest.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], Mod):
            inner = mono[0]
            if isinstance(inner.den, int) and inner.den % den == 0:
                return mod(inner.num, den)
    return _atom(rest, den, Mod)


def _split(num: Dim, den: int) -> tuple[Dim, Dim]:
    """num = whole · den + rest, moving to ``whole`` what divides without a floor."""
    whole: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for mono, coef in _terms(num):
        quotient, remainder = divmod(coef, den)
        if not mono or remainder == 0:
            whole[mono], rest[mono] = quotient, remainder
        else:
            rest[mono] = coef
    return _make(whole), _make(rest)


def _steps(num: Dim, den: int) -> tuple[Dim, Dim]:
    """The terms of which every value is a multiple of ``den``, and the others."""
    steps: dict[Mono, int] = {}
    small: dict[Mono, int] = {}
    for mono, coef in _terms(num):
        (small if coef * _unit(mono) % den else steps)[mono] = coef
    return _make(steps), _make(small)


def _digit(x: Dim, den: int) -> bool:
    lo, hi = bounds(x)
    return lo >= 0 and hi < den


def _atom(num: Dim, den: Dim, kind: Callable[..., Atom]) -> Dim:
    if isinstance(num, int) and isinstance(den, int):
        return num // den if kind is FloorDiv else num % den
    return kind(num if isinstance(num, Expr) else Expr((((), num),)), den).expr()


def minimum(*args: Dim) -> Dim:
    """Smallest of the arguments; bounds decide where they can."""
    return _extreme("min", args)


def maximum(*args: Dim) -> Dim:
    """Largest of the arguments; bounds decide where they can."""
    return _extreme("max", args)


def _extreme(name: str, args: tuple[Dim, ...]) -> Dim:
    kept: list[Dim] = []
    for arg in dict.fromkeys(args):
        if any(_dominates(name, other, arg) for other in kept):
            continue
        kept = [other for other in kept if not _dominates(name, arg, other)]
        kept.append(arg)
    if len(kept) == 1:
        return kept[0]
    return MinMax(name, tuple(sorted(kept, key=lambda x: (str(x), _told_apart(x))))).expr()


def _dominates(name: str, a: Dim, b: Dim) -> bool:
    """a is always the better choice than b (or as good)."""
    lo, hi = bounds(b - a) if name == "min" else bounds(a - b)
    return lo >= 0 and hi >= 0


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Smallest integer not below a / b."""
    return -((-a) // b)


def _dim(x: object) -> Dim:
    if isinstance(x, (int, Expr)):
        return x
    raise TypeError(f"not an integer expression: {x!r}")


def symbols(x: Dim) -> frozenset[Sym]:
    """The symbols that occur in ``x``."""
    out: set[Sym] = set()
    stack: list[Dim] = [x]
    while stack:
        top = stack.pop()
        if not isinstance(top, Expr):
            continue
        for mono, _ in top.terms:
            for atom in mono:
                if isinstance(atom, Sym):
                    out.add(atom)
                elif isinstance(atom, (FloorDiv, Mod)):
                    stack += [atom.num, atom.den]
                elif isinstance(atom, MinMax):
                    stack += atom.args
    return frozenset(out)


def substitute(x: Dim, env: Mapping[Sym, Dim]) -> Dim:
    """``x`` with symbols replaced; symbols not in ``env`` stay."""
    if not isinstance(x, Expr):
        return x
    total: Dim = 0
    for mono, coef in x.terms:
        value: Dim = coef
        for atom in mono:
            value = value * _replace(atom, env)
        total = total + value
    return total


def _replace(atom: Atom, env: Mapping[Sym, Dim]) -> Dim:
    if isinstance(atom, Sym):
        return env.get(atom, atom.expr())
    if isinstance(atom, FloorDiv):
        return floordiv(substitute(atom.num, env), substitute(atom.den, env))
    if isinstance(atom, Mod):
        return mod(substitute(atom.num, env), substitute(atom.den, env))
    assert isinstance(atom, MinMax)
    return _extreme(atom.name, tuple(substitute(a, env) for a in atom.args))


def evaluate(x: Dim, env: Mapping[Sym, int]) -> int:
    """The integer value of ``x``; KeyError for a symbol without a value."""
    if not isinstance(x, Expr):
        return x
    total = 0
    for mono, coef in x.terms:
        value = coef
        for atom in mono:
            value *= _value(atom, env)
        total += value
    return total


def _value(atom: Atom, env: Mapping[Sym, int]) -> int:
    if isinstance(atom, Sym):
        return env[atom]
    if isinstance(atom, FloorDiv):
        return evaluate(atom.num, env) // evaluate(atom.den, env)
    if isinstance(atom, Mod):
        return evaluate(atom.num, env) % evaluate(atom.den, env)
    assert isinstance(atom, MinMax)
    pick = min if atom.name == "min" else max
    return pick(evaluate(a, env) for a in atom.args)


def _own_name(s: Sym) -> str:
    return s.name


def _same(word: str) -> str:
    return word


def render(
    x: Dim, name: Callable[[Sym], str] = _own_name, word: Callable[[str], str] = _same
) -> str:
    """``x`` as a Python expression that parses back to the same value.

    ``name`` spells symbols, ``word`` the functions ``min`` and ``max``.
    """
    if not isinstance(x, Expr):
        return str(x)
    out = ""
    for mono, coef in x.terms:
        factors = [_render_atom(a, name, word) for a in mono]
        if abs(coef) != 1 or not factors:
            factors.insert(0, str(abs(coef)))
        text = " * ".join(factors)
        if not out:
            out = text if coef > 0 else f"-{text}"
        else:
            out += f" + {text}" if coef > 0 else f" - {text}"
    return out


def _render_atom(atom: Atom, name: Callable[[Sym], str], word: Callable[[str], str]) -> str:
    if isinstance(atom, Sym):
        return name(atom)
    if isinstance(atom, MinMax):
        return f"{word(atom.name)}({', '.join(render(a, name, word) for a in atom.args)})"
    assert isinstance(atom, (FloorDiv, Mod))
    sign = "//" if isinstance(atom, FloorDiv) else "%"
    return f"({_operand(atom.num, name, word)} {sign} {_operand(atom.den, name, word)})"


def _operand(x: Dim, name: Callable[[Sym], str], word: Callable[[str], str]) -> str:
    text = render(x, name, word)
    simple = not isinstance(x, Expr) or (
        len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1
    )
    return text if simple else f"({text})"
