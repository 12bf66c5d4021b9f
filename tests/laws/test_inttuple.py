"""Laws of nested tuples."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import Symbol, leaves, nested, shapes

from tilefoundry.diag import Refusal
from tilefoundry.layout import (
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

trees = nested(st.integers(0, 9), max_leaves=8)


@given(trees)
def test_flatten_lists_the_leaves(t):
    assert list(flatten(t)) == leaves(t)


@given(trees)
def test_unflatten_undoes_flatten(t):
    assert unflatten(flatten(t), t) == t


def test_unflatten_refuses_another_number_of_leaves():
    with pytest.raises(Refusal, match="layout-congruence"):
        unflatten((1, 2, 3), (1, (2, (3, 4))))


def test_product_and_size_by_hand():
    assert product(((2, 8, 8), (4, 16))) == 8192
    assert size((128, 64)) == 8192
    assert product(()) == 1
    assert product(7) == 7


@given(shapes)
def test_size_counts_the_coordinates(shape):
    assert size(shape) == sum(1 for _ in itertools.product(*map(range, leaves(shape))))


def test_product_of_symbols_multiplies_them():
    assert product((Symbol("n"),)) == Symbol("n")
    assert str(product((Symbol("n"), 4))) == "(n*4)"


def test_rank_and_depth_by_hand():
    assert [rank(t) for t in (5, (5,), ((2, 8), 4), ())] == [1, 1, 2, 0]
    assert [depth(t) for t in (5, (5,), ((2, 8), 4), (((1,),),))] == [0, 1, 2, 3]


@given(trees)
def test_depth_and_rank_follow_nesting(t):
    assert depth((t,)) == depth(t) + 1
    assert rank((t, t)) == 2


@given(trees)
def test_congruent_ignores_values_only(t):
    assert congruent(t, unflatten(tuple(99 for _ in flatten(t)), t))
    assert not congruent(t, (t,))
    assert not congruent((t, t), (t,))


@given(shapes)
def test_compact_strides_count_row_major(shape):
    strides = leaves(compact_strides(shape))
    listed = itertools.product(*map(range, leaves(shape)))
    offsets = [sum(map(int.__mul__, crd, strides)) for crd in listed]
    assert offsets == list(range(len(offsets)))
    assert congruent(compact_strides(shape), shape)


@given(shapes)
def test_idx2crd_walks_the_last_mode_fastest(shape):
    for i, crd in enumerate(itertools.product(*map(range, leaves(shape)))):
        assert tuple(leaves(idx2crd(i, shape))) == crd


@given(shapes)
def test_crd2idx_undoes_idx2crd(shape):
    for i in range(size(shape)):
        assert crd2idx(idx2crd(i, shape), shape) == i
        assert crd2idx(i, shape) == i


def test_crd2idx_decomposes_a_number_over_a_nested_mode():
    # 13 over (4, 8) row-major is (1, 5).
    assert crd2idx((13, 2), ((4, 8), 3), ((100, 10), 1)) == 100 + 50 + 2


@pytest.mark.parametrize("crd", [(8, 0), (0, 8), (-1, 0), (1, 2, 3), 64, ((1, 1), 0)])
def test_crd2idx_refuses_what_lies_outside(crd):
    with pytest.raises(Refusal, match="layout-coordinate"):
        crd2idx(crd, (8, 8))


def test_idx2crd_refuses_what_lies_outside():
    with pytest.raises(Refusal, match="layout-coordinate"):
        idx2crd(64, (8, 8))
