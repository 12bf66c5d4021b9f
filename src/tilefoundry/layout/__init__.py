"""Layouts after CuTe, row-major: pure, immutable, importing nothing but diagnostics.

The algebra is imported when one of its functions is first named: programs are typed and
priced without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from tilefoundry.layout.algebra import (
        Tiler,
        blocked_product,
        coalesce,
        complement,
        composition,
        cute_str,
        filter,
        left_inverse,
        logical_divide,
        logical_product,
        raked_product,
        right_inverse,
        slice_layout,
        tiled_divide,
        to_cute,
        zipped_divide,
    )

ALGEBRA = frozenset(
    [
        *("Tiler", "blocked_product", "coalesce", "complement", "composition", "cute_str"),
        *("filter", "left_inverse", "logical_divide", "logical_product", "raked_product"),
        *("right_inverse", "slice_layout", "tiled_divide", "to_cute", "zipped_divide"),
    ]
)


def __getattr__(name: str) -> Any:
    if name not in ALGEBRA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilefoundry.layout import algebra

    return getattr(algebra, name)


__all__ = [
    "ComposedLayout",
    "IntTuple",
    "Layout",
    "Swizzle",
    "Tiler",
    "blocked_product",
    "coalesce",
    "compact_strides",
    "complement",
    "composition",
    "congruent",
    "crd2idx",
    "cute_str",
    "depth",
    "filter",
    "flatten",
    "idx2crd",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "product",
    "raked_product",
    "rank",
    "right_inverse",
    "size",
    "slice_layout",
    "tiled_divide",
    "to_cute",
    "unflatten",
    "zipped_divide",
]
