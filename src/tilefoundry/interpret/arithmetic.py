"""Floating-point steps of instructions, exact to the bit, on numpy arrays of float64.

A multiply-add of a narrower dtype is worked out in float64, rounded to odd, and rounded once
more; of float64 itself from error-free parts (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57, 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

NARROW: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float16: np.float16}
SPLIT = float(2**27 + 1)
"""Dekker's constant: the halves of a float64 multiply without rounding."""


def rounded(x: Any, dtype: torch.dtype) -> Any:
    """``x`` in ``dtype``, kept as float64; of a sum of two values of ``dtype`` what adding them
    there gives."""
    if dtype == torch.float64:
        return x
    with np.errstate(over="ignore"):
        return x.astype(NARROW[dtype]).astype(np.float64)


def fused(a: Any, b: Any, c: Any, dtype: torch.dtype) -> Any:
    """``a * b + c`` rounded once to ``dtype``; in a narrower dtype than float64 the product of
    ``a`` and ``b`` must be exact in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != torch.float64:
            return rounded(odd_sum(a * b, c), dtype)
        high, low = _product(a, b)
        mid, small = _sum(c, low)
        top, rest = _sum(high, mid)
        out = top + odd_sum(rest, small)
        plain = a * b + c
        return np.where(np.isfinite(out), out, plain)


def odd_sum(x: Any, y: Any) -> Any:
    """``x + y`` in float64, rounded to odd: where it is not exact, to that one of the two
    neighbours whose last bit is 1."""
    total, error = _sum(x, y)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)
    inexact = (error != 0) & np.isfinite(error) & (bits & 1 == 0)
    return np.where(inexact, bits + np.where(away, 1, -1), bits).view(np.float64)


def _sum(x: Any, y: Any) -> tuple[Any, Any]:
    """(rounded sum, its error), Knuth."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _product(x: Any, y: Any) -> tuple[Any, Any]:
    """(rounded product, its error), Dekker."""
    total = x * y
    xh, yh = SPLIT * x, SPLIT * y
    xh, yh = xh - (xh - x), yh - (yh - y)
    xl, yl = x - xh, y - yh
    return total, ((xh * yh - total) + xh * yl + xl * yh) + xl * yl
