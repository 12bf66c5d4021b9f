"""Index expressions, numbers and element types as CUDA C++.

A thread holds a tile as an array of words: ``per_word`` elements of 16 or 8 bits in each,
else one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilefoundry.emit.c.text import bits_of, number
from tilefoundry.emit.language import Language
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim, Expr, FloorDiv, MinMax, Mod, Mono, Sym, bounds

INT_MAX = 2**31 - 1


def cuda_dim(x: Dim, name: Callable[[Sym], str]) -> str:
    """``x`` as C++; of 64 bits where it, or a part of it, may exceed an int."""
    lo, hi = bounds(x)
    if lo >= -INT_MAX and hi <= INT_MAX and narrow(x):
        return _bare(_sum(x, name))
    return _bare(_sum(x, lambda s: f"(int64_t){name(s)}"))


def narrow(x: Dim) -> bool:
    """Whether all that is computed on the way to ``x`` are ints."""
    if not isinstance(x, Expr):
        return abs(x) <= INT_MAX
    low = high = 0
    for mono, coef in _ordered(x):
        part = bounds(Expr(((mono, coef),)) if mono else coef)
        if math.inf not in part:  # a running count is an int
            low, high = low + part[0], high + part[1]
        if low < -INT_MAX or high > INT_MAX or not all(map(_narrow_factor, mono)):
            return False
    return True


def _narrow_factor(atom: object) -> bool:
    if isinstance(atom, Sym):
        return atom.hi == math.inf or (atom.lo >= -INT_MAX and atom.hi <= INT_MAX)
    if isinstance(atom, MinMax):
        return all(map(narrow, atom.args))
    assert isinstance(atom, (FloorDiv, Mod))
    return narrow(atom.num) and narrow(atom.den)


def _ordered(x: Expr) -> list[tuple[Mono, int]]:
    """The terms, what is added first, so that no sum begins with a sign."""
    return sorted(x.terms, key=lambda t: (t[1] < 0, not t[0]))


def enclosed(text: str) -> bool:
    """Whether one pair of parentheses is around all of ``text``."""
    depth = 0
    for n, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth:
            return n == len(text) - 1 and text[0] == "("
    return False


def _bare(text: str) -> str:
    return text[1:-1] if enclosed(text) else text


def _sum(x: Dim, name: Callable[[Sym], str]) -> str:
    if not isinstance(x, Expr):
        return str(x)
    out = ""
    for mono, coef in _ordered(x):
        factors = [_factor(a, name) for a in mono]
        if abs(coef) != 1 or not factors:
            factors.append(str(abs(coef)))
        text = " * ".join(factors)
        if out:
            out += f" - {text}" if coef < 0 else f" + {text}"
        else:
            out = f"-{text}" if coef < 0 else text
    return out


def _factor(atom: object, name: Callable[[Sym], str]) -> str:
    if isinstance(atom, Sym):
        return name(atom)
    if isinstance(atom, MinMax):
        first, *rest = (_sum(a, name) for a in atom.args)
        for other in rest:
            first = f"tf_{atom.name}({first}, {other})"
        return first
    assert isinstance(atom, (FloorDiv, Mod))
    num, den = _sum(atom.num, name), _sum(atom.den, name)
    if bounds(atom.num)[0] < 0:
        return f"tf_{'div' if isinstance(atom, FloorDiv) else 'mod'}({num}, {den})"
    num = num if num.isidentifier() or enclosed(num) else f"({num})"
    den = den if den.isidentifier() or den.isdigit() else f"({den})"
    return f"({num} {'/' if isinstance(atom, FloorDiv) else '%'} {den})"


def per_word(dtype: DType) -> int:
    """Elements in a word of a thread's array."""
    if dtype.kind == "bool" or dtype.bits >= 32:
        return 1
    return 32 // dtype.bits


def word_type(dtype: DType) -> str:
    """The C++ type of a word of a thread's array."""
    if dtype.kind == "bool":
        return "bool"
    if per_word(dtype) > 1:
        return "uint32_t"
    return {"f32": "float", "f64": "double", "i32": "int", "i64": "int64_t"}[dtype.name]


def stored_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    names = {"f32": "float", "f64": "double", "i32": "int", "i64": "int64_t",
             "i16": "int16_t", "i8": "int8_t"}  # fmt: skip
    return names.get(dtype.name, f"uint{dtype.bits}_t")


def wide(dtype: DType) -> str:
    """What values of ``dtype`` are computed in: ``f32``, ``f64``, ``i32``, ``i64``, ``bool``."""
    if dtype.is_float:
        return "f64" if dtype.bits == 64 else "f32"
    if dtype.kind == "bool":
        return "bool"
    return "i64" if dtype.bits == 64 else "i32"


C_TYPES = {"f32": "float", "f64": "double", "i32": "int", "i64": "int64_t", "bool": "bool"}


def from_word(dtype: DType, word: str, lane: int) -> str:
    """Element ``lane`` of a word, widened."""
    if per_word(dtype) == 1:
        return word
    return f"tf_{dtype.name}_at<{lane}>({word})"


def to_word(dtype: DType, have: str, parts: Sequence[str]) -> str:
    """A word of the elements ``parts``, computed as ``have``; rounded once."""
    if per_word(dtype) == 1:
        return converted(parts[0], have, wide(dtype))
    parts = [converted(p, have, wide(dtype)) for p in parts]
    zero = number(0, dtype)
    parts += [zero] * (per_word(dtype) - len(parts))
    return f"tf_pack_{dtype.name}({', '.join(parts)})"


def literal(value: float | bool, dtype: DType) -> str:
    """A number in the type that ``dtype`` is computed in."""
    text = number(value, dtype)
    return f"{text}LL" if wide(dtype) == "i64" and not text.endswith("LL") else text


def converted(text: str, have: str, want: str) -> str:
    """A computed value as another computed type."""
    if have == want:
        return text
    if want == "bool":
        return f"(({text}) != 0)"
    if have in ("f32", "f64") and want in ("i32", "i64"):
        return f"tf_to_{want}({text})"
    return f"({C_TYPES[want]})({text})"


def from_memory(dtype: DType, element: str) -> str:
    """An element read from memory, widened."""
    if dtype.is_float and dtype.bits <= 16:
        return f"tf_{dtype.name}_at<0>({element})"
    return f"({element} != 0)" if dtype.kind == "bool" else element


def to_memory(dtype: DType, have: str, text: str) -> str:
    """A computed value as an element in memory."""
    if per_word(dtype) == 1:
        return converted(text, have, wide(dtype))
    return f"({stored_type(dtype)}){to_word(dtype, have, [text])}"


def fit(values: Sequence[int], var: str) -> str | None:
    """An expression of ``var``, an int, that is ``values[var]``, by digits of ``var``; None if
    there is none."""
    count, first = len(values), values[0]
    if max(map(abs, (*values, *(v - first for v in values)))) > INT_MAX:
        var = f"(int64_t){var}"
    steps = [v - first for v in values]
    digits: list[tuple[int, int, int]] = []
    inner = 1
    while inner < count:
        step, extent = steps[inner], 1
        while extent * inner < count and steps[extent * inner] == extent * step:
            extent += 1
        while count % (extent * inner):
            extent -= 1
        if extent == 1:
            return None
        digits.append((inner, extent, step))
        inner *= extent
    if any(sum(n // i % e * s for i, e, s in digits) != x for n, x in enumerate(steps)):
        return None
    terms: list[str] = []
    for i, e, s in digits:
        if s:
            digit = f"{var} / {i}" if i > 1 else var
            digit = f"{digit} % {e}" if i * e != count else digit
            simple = digit == var
            terms.append(digit if s == 1 else f"{digit if simple else f'({digit})'} * {s}")
    if first or not terms:
        terms.append(str(first))
    return " + ".join(terms).replace("+ -", "- ")


__all__ = [
    "C_TYPES",
    "bits_of",
    "converted",
    "cuda_dim",
    "fit",
    "from_memory",
    "from_word",
    "literal",
    "number",
    "per_word",
    "stored_type",
    "to_memory",
    "to_word",
    "wide",
    "word_type",
]  # fmt: skip


CUDA = Language(
    lambda name, have, args: f"tf_{name}({', '.join(args)})",
    lambda have: {"f32": "0.0f", "f64": "0.0", "i64": "0LL"}.get(have, "0"),
    wide, truth="bool", either="||", both="&&", divide="divide",
)  # fmt: skip
"""Of one thread's values; the header's functions are overloaded."""
