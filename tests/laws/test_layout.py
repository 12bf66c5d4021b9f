"""Laws of Layout: evaluation, modes, printing, injectivity."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import (
    Symbol,
    bijective,
    enumerate_row_major,
    layouts,
    leaves,
    permuted,
    shapes,
)

from tilefoundry.diag import Refusal
from tilefoundry.layout import ComposedLayout, Layout, Swizzle, compact_strides, size

NAMES = {"Layout": Layout, "Swizzle": Swizzle, "ComposedLayout": ComposedLayout}


@given(layouts())
def test_layout_call_is_the_sum_of_coordinate_times_stride(layout):
    assert [layout(i) for i in range(layout.size())] == enumerate_row_major(layout)


def test_layout_call_takes_index_coordinates_or_tuple():
    layout = Layout((3, 128), (128, 1))
    assert layout(129) == layout(1, 1) == layout((1, 1)) == 129
    assert Layout(8, 3)(2) == Layout((8,), (3,))((2,)) == 6
    assert Layout(())() == 0


@given(layouts())
def test_layout_offsets_list_every_index(layout):
    assert layout.offsets() == enumerate_row_major(layout)


@given(layouts())
def test_layout_size_and_cosize_bound_the_offsets(layout):
    offsets = enumerate_row_major(layout)
    assert layout.size() == len(offsets)
    assert layout.cosize() == max(offsets) + 1


def test_layout_cosize_of_nothing_is_zero():
    assert Layout((0, 4)).size() == Layout((0, 4)).cosize() == 0
    assert Layout((0, 4)).offsets() == []


def test_layout_rank_and_depth_count_the_nesting():
    layout = Layout(((2, 8, 8), (4, 16)))
    assert (layout.rank, layout.depth) == (2, 2)
    assert (Layout(8).rank, Layout(8).depth) == (1, 0)


@given(layouts())
def test_layout_getitem_splits_the_offset_by_mode(layout):
    modes = [layout[k] for k in range(layout.rank)]
    assert list(layout) == modes
    sums = [0]
    for mode in modes:
        sums = [base + own for base in sums for own in enumerate_row_major(mode)]
    assert sums == enumerate_row_major(layout)


def test_layout_getitem_by_hand():
    layout = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1)))
    assert layout[1] == Layout((4, 64), (1024, 1))
    assert layout[-1] == layout[1]
    assert layout[1][0] == Layout(4, 1024)
    assert layout[0:1] == Layout(((4, 2, 8),), ((4096, 512, 64),))
    with pytest.raises(Refusal, match="layout-mode"):
        layout[2]


@given(layouts())
def test_layout_leaves_and_flatten_keep_the_function(layout):
    assert [s for s, _ in layout.leaves()] == leaves(layout.shape)
    assert layout.flatten().depth <= 1
    assert enumerate_row_major(layout.flatten()) == enumerate_row_major(layout)


def test_layout_constants_refuse_symbols():
    assert Layout((2, 3)).constants() == ((2, 3), (3, 1))
    with pytest.raises(Refusal, match="layout-symbolic"):
        Layout((Symbol("n"), 4)).constants()


@given(layouts(stride=st.integers(0, 40)))
def test_layout_is_injective_agrees_with_enumeration(layout):
    offsets = enumerate_row_major(layout)
    assert layout.is_injective() == (len(set(offsets)) == len(offsets))


def test_layout_is_injective_where_strides_interleave():
    assert Layout((3, 2), (2, 3)).is_injective()  # 0 3 2 5 4 7
    assert not Layout((4, 2), (2, 6)).is_injective()  # 6 = 3*2 = 1*6


def test_layout_is_injective_on_large_layouts_without_listing():
    assert Layout((8192, 17408, 5120)).is_injective()
    assert Layout((10**6, 10**6), (1, 10**6)).is_injective()
    assert not Layout((10**6, 10**6), (1, 10**6 - 1)).is_injective()


@given(layouts(stride=st.integers(0, 12)))
def test_layout_is_bijective_agrees_with_enumeration(layout):
    offsets = enumerate_row_major(layout)
    assert layout.is_bijective() == (sorted(offsets) == list(range(len(offsets))))


@given(bijective())
def test_layout_is_bijective_on_permuted_modes(layout):
    assert layout.is_bijective()


@given(shapes)
def test_layout_is_compact_exactly_when_it_counts(shape):
    assert Layout(shape).is_compact()
    assert enumerate_row_major(Layout(shape)) == list(range(size(shape)))
    assert Layout(shape, compact_strides(shape)) == Layout(shape)


def test_layout_is_compact_not_with_other_strides():
    assert not Layout((2, 4), (1, 2)).is_compact()


@given(layouts())
def test_layout_parses_back_equal(layout):
    assert eval(repr(layout), dict(NAMES)) == layout
    assert hash(eval(str(layout), dict(NAMES))) == hash(layout)


@pytest.mark.parametrize(
    "text",
    [
        "Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1)))",
        "Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3)",
        "Layout((8, 16))",
        "Layout((8, 16), (1, 8))",
        "Layout((8,))",
        "Layout(8)",
        "Layout(())",
        "Layout(((4, 8, 4),), ((32, 4, 1),))",
        "Layout((2, 4, 8, 4), (128, 32, 4, 1)) + 128",
        "Layout((8, 16)) + 16 | Swizzle(3, 4, 3)",
    ],
)
def test_layout_prints_as_the_language_writes(text):
    # Strides of a flat compact layout are left out; all others are shown.
    short = text.replace("(2, 4, 8, 4), (128, 32, 4, 1)", "(2, 4, 8, 4)")
    assert repr(eval(text, dict(NAMES))) == short


@pytest.mark.parametrize(
    ("shape", "strides", "code"),
    [
        ((8, 16), (1,), "layout-congruence"),
        ((8, (2, 8)), (16, 1), "layout-congruence"),
        ((8, -1), None, "layout-extent"),
        ((8, 2.0), None, "layout-extent"),
        ((8, True), None, "layout-extent"),
        ("ab", None, "layout-extent"),
        ((8, None), None, "layout-extent"),
        ([8, 16], None, "layout-extent"),
        ((8, 16), (16, -1), "layout-extent"),
    ],
)
def test_layout_refuses_what_is_no_layout(shape, strides, code):
    with pytest.raises(Refusal, match=code):
        Layout(shape, strides)


def test_layout_coalesce_needs_no_numbers():
    n = Symbol("n")
    assert Layout((n, 4, 8)).coalesce().leaves()[-1] == (Symbol("(n*32)"), 1)
    assert str(Layout((n, 4))) == "Layout((n, 4))"
    assert str(Layout((n, 4)).size()) == "(n*4)"
    assert Layout((n, 4)).is_injective()
    assert Layout((n, 4)) == Layout((Symbol("n"), 4))
    assert str(Layout((n, 4))(1, 2)) == "6"


@given(layouts(), st.integers(0, 9), permuted())
def test_layout_is_a_value(layout, offset, other):
    assert {layout: 1}[Layout(layout.shape, layout.strides)] == 1
    assert (layout + offset) == ComposedLayout(None, offset, layout)
    assert (layout == other) == ((layout.shape, layout.strides) == (other.shape, other.strides))
    with pytest.raises(AttributeError):
        layout.shape = other.shape
