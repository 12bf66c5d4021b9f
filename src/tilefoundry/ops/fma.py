"""fma: out[i] = x[i] * y[i] + z[i], rounded once in f32 or f64.

Where the operator form ``x * y + z`` rounds the product first, this does not (IEEE 754,
fusedMultiplyAdd). 16-bit floats are computed so in f32, and rounded once more when stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf, isfinite
from typing import Any

from tilefoundry.ir.types import Type
from tilefoundry.ops._elementwise import FLOATS, Elementwise, common, over
from tilefoundry.ops.base import Example
from tilefoundry.ops.signature import Operand


class Fma(Elementwise):
    params = (
        Operand("x", number=True),
        Operand("y", number=True),
        Operand("z", number=True),
    )

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        x, y, z = torch.broadcast_tensors(*common(args))
        if x.dtype == torch.float64:
            return _in_f64(x, y, z)
        # the product of two f32 is exact in f64
        product, more = x.double() * y.double(), z.double()
        return _to_odd(product, more).float().to(x.dtype)


SPLIT = 2.0**27 + 1
FACTORS, TERMS = (2.0**-400, 2.0**400), (2.0**-850, 2.0**900)
"""Magnitudes of factors and terms with which nothing of :func:`_in_f64` leaves f64."""


def _in_f64(x: Any, y: Any, z: Any) -> Any:
    """x * y + z of f64, rounded once: from an exact product and exact sums, the small parts of
    which are added to an odd last place (Boldo and Melquiond, 2008, figure 2)."""
    import torch

    high = x * y
    low = _left_of(x, y, high)
    upper, under = _two_sum(z, low)
    whole, rest = _two_sum(high, upper)
    made = whole + _to_odd(under, rest)
    a, b, c = x.abs(), y.abs(), z.abs()
    inside = (c == 0) | ((c >= TERMS[0]) & (c <= TERMS[1]))
    for factor in (a, b):
        inside &= (factor >= FACTORS[0]) & (factor <= FACTORS[1])
    exact = (x.isfinite() & (y == 0)) | (y.isfinite() & (x == 0))
    made = torch.where(exact, high + z, made)  # a zero is no rounding
    left = (~(inside | exact)).flatten().nonzero().flatten()
    if left.numel():
        given = zip(*(v.flatten()[left].tolist() for v in (x, y, z)), strict=True)
        others = torch.tensor([_fused(*t) for t in given], dtype=x.dtype, device=x.device)
        made = made.flatten().index_put((left,), others).reshape(x.shape)
    return made


def _left_of(x: Any, y: Any, product: Any) -> Any:
    """What a rounded product leaves, exactly (Dekker's product of halves, by Veltkamp's split)."""
    halves: list[tuple[Any, Any]] = []
    for v in (x, y):
        scaled = v * SPLIT
        upper = scaled - (scaled - v)
        halves.append((upper, v - upper))
    (a, b), (c, d) = halves
    return ((a * c - product) + a * d + b * c) + b * d


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum and what it leaves, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(a: Any, b: Any) -> Any:
    """a + b of f64, to an odd last place where it is not exact: rounding that to fewer places is
    rounding the sum (Boldo and Melquiond, 2008)."""
    import torch

    total, rest = _two_sum(a, b)
    bits = total.view(torch.int64)
    off = torch.isfinite(total) & (rest != 0) & (bits & 1 == 0)
    step = torch.where((rest > 0) == (total > 0), 1, -1)
    return torch.where(off, bits + step, bits).view(torch.float64)


def _fused(x: float, y: float, z: float) -> float:
    """x * y + z of f64: a quotient of integers is rounded once."""
    if not (isfinite(x) and isfinite(y)):
        return x * y + z
    if not isfinite(z):
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        return 0.0 if x and y else x * y + z  # the sign of a zero
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return inf if exact > 0 else -inf


OP = Fma(
    "fma",
    "fma",
    kinds=("float",),
    flops=2,
    examples=(
        *over(*FLOATS, shapes=((4, 8), (4, 8), (4, 8))),
        Example((((4, 8), "f32"), ((), "f32"), ((8,), "f32"))),
        Example((((4, 1), "bf16"), ((8,), "f32"), ((4, 8), "f32"))),
    ),
)
