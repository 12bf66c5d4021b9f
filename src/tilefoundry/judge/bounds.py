"""Bounds derived from element types and the length of a reduction.

u is a type's unit roundoff: 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16. A sum of n products
that is accumulated with roundoff u_acc is off by at most gamma(n) = n·u_acc / (1 - n·u_acc)
times the sum of the products' magnitudes (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.1), typically by sqrt(n)·u_acc (Higham and Mary 2019), and
rounding the result adds u_out. Two computations that are compared may each be off by that.
"""

from __future__ import annotations

import math

from tilefoundry.ir.dtype import dtype_of
from tilefoundry.judge.numbers import spacing


def unit_roundoff(dtype: str) -> float:
    """Largest relative error of rounding to ``dtype``: half the spacing at 1."""
    return spacing(dtype_of(dtype)) / 2


def worst(n: int, accumulate: str = "f32", output: str = "f32") -> float:
    """Bound of |got - expected| relative to the sum of the terms' magnitudes, for a sum of
    ``n`` terms; it always holds, and is wide for long sums."""
    share = n * unit_roundoff(accumulate)
    if share >= 1:
        return math.inf
    return 2 * (share / (1 - share) + unit_roundoff(output))


def typical(n: int, accumulate: str = "f32", output: str = "f32") -> float:
    """Relative L2 difference to expect of two sums of ``n`` terms of random sign: a bound for
    ``rel_l2``."""
    return 2 * (math.sqrt(n) * unit_roundoff(accumulate) + unit_roundoff(output))


def absolute(n: int, scale: float, accumulate: str = "f32", output: str = "f32") -> float:
    """``--atol`` or ``max_abs --max`` for a sum of ``n`` terms of random sign and standard
    deviation ``scale``: six deviations of the sum, times the typical relative difference.

    A term of a matmul is a product: its ``scale`` is the product of its factors' deviations.
    """
    return 6 * math.sqrt(n) * scale * typical(n, accumulate, output)
