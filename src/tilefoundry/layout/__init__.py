"""Layouts after CuTe, row-major: pure, immutable, importing nothing but diagnostics."""

from tilefoundry.layout.inttuple import (
    IntTuple,
    compact_strides,
    congruent,
    crd2idx,
    depth,
    flatten,
    idx2crd,
    product,
    rank,
    size,
    unflatten,
)
from tilefoundry.layout.layout import ComposedLayout, Layout
from tilefoundry.layout.swizzle import Swizzle

__all__ = [
    "ComposedLayout",
    "IntTuple",
    "Layout",
    "Swizzle",
    "compact_strides",
    "congruent",
    "crd2idx",
    "depth",
    "flatten",
    "idx2crd",
    "product",
    "rank",
    "size",
    "unflatten",
]
