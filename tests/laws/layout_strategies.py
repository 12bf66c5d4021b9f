"""Random layouts, and the oracle of the laws: plain enumeration of coordinates."""

from __future__ import annotations

import itertools
from math import prod

from hypothesis import strategies as st

from tilefoundry.layout import ComposedLayout, Layout, flatten, unflatten


def leaves(t):
    """Leaves of a nested tuple, written anew so that the oracle stands alone."""
    return [x for mode in t for x in leaves(mode)] if isinstance(t, tuple) else [t]


def enumerate_row_major(layout):
    """Offsets in row-major order: itertools.product turns its last range fastest."""
    offset = layout.offset if isinstance(layout, ComposedLayout) else 0
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    strides = leaves(inner.strides)
    return [
        offset + sum(c * d for c, d in zip(crd, strides, strict=True))
        for crd in itertools.product(*map(range, leaves(inner.shape)))
    ]


def enumerate_first_fastest(layout):
    """Offsets in CuTe's order: the first mode turns fastest."""
    strides = leaves(layout.strides)[::-1]
    return [
        sum(c * d for c, d in zip(crd, strides, strict=True))
        for crd in itertools.product(*map(range, leaves(layout.shape)[::-1]))
    ]


extents = st.sampled_from([1, 2, 3, 4, 6, 8])


def nested(leaf, max_leaves=4):
    """Nested tuples with ``leaf`` at the leaves."""
    return st.recursive(
        leaf, lambda t: st.lists(t, min_size=1, max_size=3).map(tuple), max_leaves=max_leaves
    )


shapes = nested(extents).filter(lambda s: prod(leaves(s)) <= 256)


strides_to_12 = st.integers(0, 12)
some_gaps = st.sampled_from([1, 1, 1, 2, 3])


@st.composite
def layouts(draw, shape=shapes, stride=strides_to_12):
    """Any layout: strides may repeat, overlap or vanish."""
    s = draw(shape)
    return Layout(s, unflatten(tuple(draw(stride) for _ in flatten(s)), s))


@st.composite
def permuted(draw, shape=shapes, gaps=some_gaps):
    """Injective layouts whose strides divide one another: any order of modes, with gaps."""
    s = draw(shape)
    flat = flatten(s)
    strides, step = [0] * len(flat), 1
    for k in draw(st.permutations(range(len(flat)))):
        step *= draw(gaps)
        strides[k] = step
        step *= flat[k]
    return Layout(s, unflatten(tuple(strides), s))


def bijective(shape=shapes):
    """Permuted layouts without gaps."""
    return permuted(shape, st.just(1))


swizzles = st.builds(
    lambda b, m, s: (b, m, s or 3), st.integers(0, 4), st.integers(0, 5), st.integers(-4, 4)
)


class Symbol:
    """An integer-like leaf that only records how it was combined."""

    def __init__(self, name):
        self.name = name

    def _with(op):
        def combine(self, other):
            return Symbol(f"({self}{op}{other})")

        def reflected(self, other):
            return Symbol(f"({other}{op}{self})")

        return combine, reflected

    __add__, __radd__ = _with("+")
    __mul__, __rmul__ = _with("*")
    __floordiv__, __rfloordiv__ = _with("//")
    __mod__, __rmod__ = _with("%")

    def __eq__(self, other):
        return isinstance(other, Symbol) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name
