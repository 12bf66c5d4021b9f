"""Index expressions and numbers as C."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from tilefoundry.emit.language import Language
from tilefoundry.ir.dtype import LARGEST, DType
from tilefoundry.ir.expr import Dim, Expr, FloorDiv, MinMax, Mod, Sym, bounds


def c_dim(x: Dim, name: Callable[[Sym], str]) -> str:
    """``x`` as a C expression of type long; ``name`` spells symbols."""
    if not isinstance(x, Expr):
        return str(x)
    out = ""
    for mono, coef in x.terms:
        factors = [_atom(a, name) for a in mono]
        if abs(coef) != 1 or not factors:
            factors.insert(0, str(abs(coef)))
        text = " * ".join(factors)
        sign = "-" if coef < 0 else "+"
        out = f"{out} {sign} {text}" if out else (f"-{text}" if coef < 0 else text)
    return out


def _atom(atom: object, name: Callable[[Sym], str]) -> str:
    if isinstance(atom, Sym):
        return name(atom)
    if isinstance(atom, MinMax):
        first, *rest = (c_dim(a, name) for a in atom.args)
        for other in rest:
            first = f"tf_{atom.name}({first}, {other})"
        return first
    assert isinstance(atom, (FloorDiv, Mod))
    num, den = c_dim(atom.num, name), c_dim(atom.den, name)
    if bounds(atom.num)[0] >= 0:  # C rounds to 0, which is down
        sign = "/" if isinstance(atom, FloorDiv) else "%"
        return f"(({num}) {sign} ({den}))"
    word = "div" if isinstance(atom, FloorDiv) else "mod"
    return f"tf_{word}({num}, {den})"


def wide(dtype: DType) -> str:
    """The C type that values of ``dtype`` are computed in."""
    if dtype.is_float:
        return "f64" if dtype.bits == 64 else "f32"
    return c_type(dtype)


def c_type(dtype: DType) -> str:
    """The C type of one stored element."""
    return "b8" if dtype.kind == "bool" else dtype.name


def rounded(value: float, dtype: DType) -> float:
    """``value`` in ``dtype``, to the nearest, halves to even."""
    if dtype.name == "f64" or value != value or math.isinf(value):
        return value
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype.name == "f16":
        try:
            return struct.unpack("e", struct.pack("e", single))[0]
        except OverflowError:
            return math.copysign(math.inf, single)
    if dtype.name == "bf16":
        (bits,) = struct.unpack("I", struct.pack("f", single))
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return struct.unpack("f", struct.pack("I", bits))[0]
    return single


def number(value: float | int | bool, dtype: DType) -> str:
    """A number of ``dtype`` as a C constant of the type it is computed in."""
    if not dtype.is_float:
        return f"{int(value)}LL" if abs(int(value)) > 2**31 - 1 else str(int(value))
    value = rounded(float(value), dtype)
    if value != value:
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    digits = repr(value) if dtype.bits == 64 else f"{value:.9g}"
    if not any(c in digits for c in ".en"):
        digits += ".0"
    return digits if dtype.bits == 64 else digits + "f"


def bits_of(value: float | int | bool, dtype: DType) -> str:
    """A number of ``dtype`` as a C constant of the type it is stored as."""
    if dtype.name == "f16":
        return hex(struct.unpack("H", struct.pack("e", rounded(float(value), dtype)))[0])
    if dtype.name == "bf16":
        (bits,) = struct.unpack("I", struct.pack("f", rounded(float(value), dtype)))
        return hex(bits >> 16)
    if dtype.is_narrow:
        shape = "3, 7" if dtype.name == "fp8e4m3" else "2, 15"
        return f"(u8)tf_f32_to_small({float(value)!r}f, {shape}, {LARGEST[dtype.name]}f)"
    return number(value, dtype)


def converted(text: str, source: DType, target: DType) -> str:
    """A vector stored or computed as ``source`` as one stored as ``target``."""
    if source is target:
        return text
    return narrowed(widened(text, source), wide(source), target)


def widened(text: str, dtype: DType) -> str:
    """A stored vector in the type it is computed in."""
    name = c_type(dtype)
    return text if name == wide(dtype) else f"tf_{name}_to_f32({text})"


def narrowed(text: str, have: str, dtype: DType) -> str:
    """A computed vector (``f32``, ``f64`` or integers) as stored elements of ``dtype``."""
    want = wide(dtype)
    if dtype.kind == "bool" and have != "b8":
        return f"tf_to(b8, {text} != 0) & 1"
    if have != want:
        text = f"tf_to({want}, {text})"
    name = c_type(dtype)
    return text if name == want else f"tf_f32_to_{name}({text})"


C = Language(
    lambda name, have, args: f"tf_{name}_{have}({', '.join(args)})",
    lambda have: f"tf_splat_{have}(0)",
    wide, truth="b8", either="|", both="&",
)  # fmt: skip
"""Of vectors of lanes."""
