"""Laws of the layout algebra; enumeration of coordinates is the oracle."""

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import (
    Symbol,
    bijective,
    enumerate_first_fastest,
    enumerate_row_major,
    extents,
    layouts,
    leaves,
    permuted,
)

from tilefoundry.diag import Refusal
from tilefoundry.layout import (
    ComposedLayout,
    Layout,
    Swizzle,
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

flat_shapes = st.lists(extents, min_size=1, max_size=3).map(tuple)
small_shapes = st.one_of(extents, flat_shapes)


def refusal(call):
    """The code a call is refused with, or None and its value."""
    try:
        return None, call()
    except Refusal as refused:
        return refused.diags[0], None


# coalesce, filter


@given(layouts())
def test_coalesce_keeps_every_offset_and_is_shortest(layout):
    short = coalesce(layout)
    assert enumerate_row_major(short) == enumerate_row_major(layout)
    modes = short.leaves()
    assert len(modes) == 1 or all(s != 1 for s, _ in modes)
    assert all(left[1] != right[0] * right[1] for left, right in itertools.pairwise(modes))
    assert coalesce(short) == short == layout.coalesce()


def test_coalesce_by_hand():
    assert coalesce(Layout((2, 4, 8, 4), (128, 32, 4, 1))) == Layout(256, 1)
    assert coalesce(Layout((3, 1, 4), (8, 99, 1))) == Layout((3, 4), (8, 1))
    assert coalesce(Layout((1, 1))) == Layout(1, 0)


@given(layouts(flat_shapes))
def test_coalesce_with_a_profile_keeps_modes_apart(layout):
    apart = coalesce(layout, (1,) * layout.rank)
    assert apart.rank == layout.rank
    for before, after in zip(layout, apart, strict=True):
        assert after == coalesce(before)


def test_coalesce_with_a_profile_refuses_another_rank():
    with pytest.raises(Refusal, match="layout-profile"):
        coalesce(Layout((2, 3)), (1, 1, 1))


@given(layouts())
def test_filter_keeps_each_offset_once_per_repetition(layout):
    kept = filter(layout)
    assert set(enumerate_row_major(kept)) == set(enumerate_row_major(layout))
    repeats = 1
    for extent, stride in zip(leaves(layout.shape), leaves(layout.strides), strict=True):
        repeats *= extent if stride == 0 else 1
    assert kept.size() * repeats == layout.size()


# composition


@given(layouts(), layouts(small_shapes))
def test_composition_maps_each_coordinate_through_both(a, b):
    outer, inner = enumerate_row_major(a), enumerate_row_major(b)
    refused, made = refusal(lambda: composition(a, b))
    if max(inner) >= len(outer):
        assert refused.code == "layout-composition-range"
    elif refused is None:
        assert enumerate_row_major(made) == [outer[i] for i in inner]
        # A lone mode may be split into several; modes of a tuple stay apart.
        if isinstance(b.shape, tuple):
            assert [m.size() for m in made] == [m.size() for m in b]
    else:
        assert refused.code == "layout-composition"


def is_layout_function(values):
    """Whether some layout has these offsets at 0, 1, 2, ...: all factorisations are tried."""
    n = len(values)
    if values == [i * values[1] for i in range(n)] if n > 1 else values == [0]:
        return True
    return any(
        n % inner == 0
        and all(values[i] == values[i // inner * inner] + i % inner * values[1] for i in range(n))
        and is_layout_function(values[::inner])
        for inner in range(2, n)
    )


OUTER = [
    Layout((4, 6), (1, 4)),
    Layout((4, 6), (7, 1)),
    Layout((2, 3, 4), (1, 9, 2)),
    Layout((3, 4, 2), (2, 6, 1)),
    Layout(24, 5),
]


@pytest.mark.parametrize("a", OUTER, ids=str)
def test_composition_with_each_mode_is_exact_or_has_no_layout(a):
    outer = enumerate_row_major(a)
    for extent, stride in itertools.product(range(1, 25), range(24)):
        refused, made = refusal(lambda e=extent, d=stride: composition(a, Layout(e, d)))
        if (extent - 1) * stride >= len(outer):
            assert refused.code == "layout-composition-range"
            continue
        values = [outer[i * stride] for i in range(extent)]
        assert (refused is None) == is_layout_function(values)
        if refused is None:
            assert enumerate_row_major(made) == values


@pytest.mark.parametrize("a", OUTER, ids=str)
def test_composition_with_each_pair_of_modes_is_exact_or_not_additive(a):
    outer = enumerate_row_major(a)
    for s, t, d, e in itertools.product((2, 3, 4), (2, 3, 6), range(1, 16), range(1, 16)):
        if (s - 1) * d + (t - 1) * e >= len(outer):
            continue
        inner = Layout((s, t), (d, e))
        refused, made = refusal(lambda b=inner: composition(a, b))
        apart = [refusal(lambda b=b: composition(a, b))[0] for b in inner]
        values = [outer[i * d + j * e] for i in range(s) for j in range(t)]
        sums = [outer[i * d] + outer[j * e] for i in range(s) for j in range(t)]
        assert (refused is None) == (apart == [None, None] and values == sums)
        if refused is None:
            assert enumerate_row_major(made) == values


@given(permuted(), st.integers(2, 24), st.integers(1, 24))
def test_composition_names_the_nearest_extent_that_fits(a, extent, stride):
    refused, _ = refusal(lambda: composition(a, Layout(extent, stride)))
    if refused is not None and refused.code == "layout-composition":
        nearest = refused.fields["nearest"]
        composition(a, Layout(nearest, stride))
        for between in range(nearest + 1, extent):
            assert refusal(lambda n=between: composition(a, Layout(n, stride)))[0]


@given(permuted())
def test_composition_with_the_identity_changes_nothing(layout):
    assert enumerate_row_major(composition(layout, Layout(layout.size()))) == (
        enumerate_row_major(layout)
    )
    if layout.cosize() > 1:
        assert composition(Layout(layout.cosize()), layout) == layout


@given(bijective(flat_shapes), bijective(small_shapes), st.data())
def test_composition_is_associative(a, b, data):
    c = Layout(data.draw(st.sampled_from([n for n in range(1, 9) if b.size() % n == 0])))
    first, ab = refusal(lambda: composition(a, b))
    second, bc = refusal(lambda: composition(b, c))
    if first is None and second is None:
        refused, left = refusal(lambda: composition(ab, c))
        also, right = refusal(lambda: composition(a, bc))
        if refused is None and also is None:
            assert enumerate_row_major(left) == enumerate_row_major(right)


@given(layouts(flat_shapes), st.data())
def test_composition_by_mode_composes_each_mode(layout, data):
    tiler = tuple(
        data.draw(st.sampled_from([None, *(n for n in (1, 2, 3, 4) if n <= m.size())]))
        for m in layout
    )
    refused, made = refusal(lambda: composition(layout, tiler))
    if refused is None:
        for mode, t, source in zip(made, tiler, layout, strict=True):
            wanted = enumerate_row_major(source)
            assert enumerate_row_major(mode) == (wanted if t is None else wanted[:t])


@given(permuted(), st.integers(1, 12), st.integers(1, 4), st.integers(0, 40))
def test_composition_carries_offsets_through(a, extent, stride, start):
    outer = enumerate_row_major(a)
    inner = Layout(extent, stride) + start
    refused, made = refusal(lambda: composition(a + 7 | Swizzle(3, 4, 3), inner))
    if refused is None:
        assert made.swizzle == Swizzle(3, 4, 3)
        assert enumerate_row_major(made) == [7 + outer[start + i * stride] for i in range(extent)]


def test_composition_refuses_a_swizzled_inner_and_symbols():
    with pytest.raises(Refusal, match="layout-composition-swizzle"):
        composition(Layout(8), Layout(8) | Swizzle(3, 4, 3))
    with pytest.raises(Refusal, match="layout-symbolic"):
        composition(Layout((Symbol("n"), 4)), Layout(4))
    with pytest.raises(Refusal, match="layout-symbolic"):
        composition(Layout(8), Layout(4) + Symbol("n"))
    with pytest.raises(Refusal, match="layout-profile"):
        composition(Layout((8, 8)), (4,))


# complement and inverses


@given(permuted(), st.integers(1, 200))
def test_complement_completes_the_layout(layout, cotarget):
    rest = complement(layout, cotarget)
    own, free = enumerate_row_major(layout), enumerate_row_major(rest)
    assert free == sorted(free)
    everything = sorted(a + b for a in own for b in free)
    assert everything == list(range(len(everything)))
    period = max([1, *(s * d for s, d in layout.leaves() if s != 1)])
    assert len(everything) == max(period, -(-cotarget // period) * period)
    assert coalesce(rest) == rest


def tiles_an_interval(offsets):
    """Whether translates of ``offsets`` tile some [0, n): each gap forces the next one."""
    taken, first = set(), 0
    while first < 4 * max(offsets) + 4:
        moved = {first + o for o in offsets}
        if moved & taken:
            return False
        taken |= moved
        if len(taken) == max(taken) + 1:
            return True
        while first in taken:
            first += 1
    return False


@given(layouts(), st.integers(1, 64))
def test_complement_refuses_only_what_has_none(layout, cotarget):
    refused, rest = refusal(lambda: complement(layout, cotarget))
    own = enumerate_row_major(filter(layout))
    if refused is None:
        everything = sorted(a + b for a in own for b in enumerate_row_major(rest))
        assert everything == list(range(len(everything)))
        assert len(everything) >= cotarget
    else:
        assert refused.code == "layout-complement"
        assert len(set(own)) < len(own) or not tiles_an_interval(own)


def test_complement_takes_a_layout_and_refuses_symbols_and_nothing():
    assert complement(Layout(4), Layout((4, 6))) == complement(Layout(4), 24) == Layout(6, 4)
    with pytest.raises(Refusal, match="layout-symbolic"):
        complement(Layout(4), Layout((Symbol("n"), 4)))
    with pytest.raises(Refusal, match="layout-empty"):
        complement(Layout((0, 4)), 4)
    with pytest.raises(Refusal, match="use stride 4"):
        complement(Layout((2, 2), (3, 1)), 8)


@given(layouts())
def test_right_inverse_is_undone_by_the_layout(layout):
    inverse = right_inverse(layout)
    offsets = enumerate_row_major(layout)
    reached = enumerate_row_major(inverse)
    assert [offsets[i] for i in reached] == list(range(len(reached)))


@given(bijective())
def test_right_inverse_of_a_bijection_is_whole_and_two_sided(layout):
    inverse = right_inverse(layout)
    assert inverse.size() == layout.size()
    back = enumerate_row_major(inverse)
    assert [back[o] for o in enumerate_row_major(layout)] == list(range(layout.size()))


@given(permuted())
def test_left_inverse_undoes_the_layout(layout):
    inverse = left_inverse(layout)
    back = enumerate_row_major(inverse)
    assert [back[o] for o in enumerate_row_major(layout)] == list(range(layout.size()))


@given(layouts())
def test_left_inverse_refuses_what_it_cannot_undo(layout):
    refused, inverse = refusal(lambda: left_inverse(layout))
    offsets = enumerate_row_major(layout)
    if refused is None:
        back = enumerate_row_major(inverse)
        assert [back[o] for o in offsets] == list(range(len(offsets)))
    elif refused.code == "layout-not-injective":
        assert len(set(offsets)) < len(offsets)
    else:
        assert refused.code == "layout-left-inverse"
        strides = sorted(d for s, d in layout.leaves() if s != 1)
        assert any(coarse % fine for fine, coarse in itertools.pairwise(strides))


def test_left_inverse_names_the_nearest_stride():
    with pytest.raises(Refusal, match="use stride 18"):
        left_inverse(Layout((4, 8), (17, 2)))
    assert left_inverse(Layout((4, 8), (18, 2)))(18) == 8


def test_left_inverse_needs_no_complement():
    # Offsets 0, 1, 3, 4 of (2,2):(3,1) have no complement, but 3i + j reads back as 2i + j.
    layout = Layout((2, 2), (3, 1))
    assert left_inverse(layout) == Layout((2, 3), (2, 1))


@pytest.mark.parametrize("invert", [left_inverse, right_inverse])
def test_left_inverse_and_right_inverse_refuse_nothing_and_symbols(invert):
    with pytest.raises(Refusal, match="layout-empty"):
        invert(Layout((0, 4)))
    with pytest.raises(Refusal, match="layout-symbolic"):
        invert(Layout((Symbol("n"), 4), (7, 1)))


# division


@given(bijective(flat_shapes), st.integers(1, 12), st.integers(1, 6))
def test_logical_divide_groups_by_tiles_of_indices(layout, extent, stride):
    tile = Layout(extent, stride)
    refused, made = refusal(lambda: logical_divide(layout, tile))
    if refused is None:
        offsets = enumerate_row_major(layout)
        rest, inner = made
        assert enumerate_row_major(inner) == [offsets[i * stride] for i in range(extent)]
        assert sorted(enumerate_row_major(made)) == sorted(offsets)
        for start in enumerate_row_major(rest):
            first = offsets.index(start)
            for i, o in enumerate(enumerate_row_major(inner)):
                assert offsets[first + i * stride] == start + o


@given(bijective(flat_shapes), st.integers(1, 12))
def test_logical_divide_refuses_only_tiles_that_do_not_cover(layout, extent):
    refused, _ = refusal(lambda: logical_divide(layout, extent))
    if layout.size() % extent:
        assert refused.code == "layout-indivisible"
    elif refused is not None:
        assert refused.code == "layout-composition"


def test_logical_divide_names_the_nearest_tiles():
    with pytest.raises(Refusal, match="use a tile of 32 or 48 elements"):
        logical_divide(Layout(96), 36)
    with pytest.raises(Refusal, match="use a tile of 96 elements"):
        logical_divide(Layout(96), 200)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_zipped_divide_and_tiled_divide_gather_rests_and_tiles(rm, tm, rn, tn):
    m, n = rm * tm, rn * tn
    layout = Layout((m, n))
    by_mode = logical_divide(layout, (tm, tn))
    zipped = zipped_divide(layout, (tm, tn))
    tiled = tiled_divide(layout, (tm, tn))
    for i, j, p, q in itertools.product(range(rm), range(rn), range(tm), range(tn)):
        offset = (i * tm + p) * n + j * tn + q
        assert by_mode((i, p), (j, q)) == offset
        assert zipped((i, j), (p, q)) == offset
        assert tiled(i, j, (p, q)) == offset


def test_zipped_divide_leaves_a_mode_whole_for_none():
    zipped = zipped_divide(Layout((8, 6)), (4, None))
    assert zipped == Layout(((2, 1), (4, 6)), ((24, 0), (6, 1)))
    assert tiled_divide(Layout(8), 4) == zipped_divide(Layout(8), 4) == Layout((2, 4))


# products


@given(permuted(flat_shapes), st.integers(1, 6))
def test_logical_product_repeats_the_block_without_overlap(block, copies):
    refused, made = refusal(lambda: logical_product(block, copies))
    if refused is not None:
        assert refused.code == "layout-composition"
        return
    repeats, own = made
    assert own == block
    assert repeats.size() == copies
    everything = enumerate_row_major(made)
    assert len(set(everything)) == len(everything) == copies * block.size()
    # The copies start at the first offsets that the block and earlier copies leave free.
    free = enumerate_row_major(complement(block, block.size() * copies))
    assert enumerate_row_major(repeats) == free[:copies]


def test_logical_product_by_mode_and_whole():
    assert logical_product(Layout((2, 3), (1, 10)), (4, None)) == Layout(
        ((4, 2), (1, 3)), ((2, 1), (0, 10))
    )


@given(bijective(flat_shapes.filter(lambda s: prod(s) <= 24)), st.data())
def test_blocked_product_and_raked_product_place_copies_by_mode(block, data):
    shape = tuple(data.draw(st.integers(1, 3)) for _ in range(block.rank))
    order = data.draw(bijective(st.just(shape)))
    blocked, raked = blocked_product(block, order), raked_product(block, order)
    grid = [range(s) for s in shape]
    own = [range(m.size()) for m in block]
    for copy, element in itertools.product(itertools.product(*grid), itertools.product(*own)):
        # A dense block: copy number order(copy) starts after that many blocks.
        offset = block(element) + block.size() * order(copy)
        pairs = list(zip(copy, shape, element, map(len, own), strict=True))
        assert blocked(tuple(c * n + e for c, _, e, n in pairs)) == offset
        assert raked(tuple(e * s + c for c, s, e, _ in pairs)) == offset


def test_blocked_product_and_raked_product_refuse_another_rank():
    for product in (blocked_product, raked_product):
        with pytest.raises(Refusal, match="layout-profile"):
            product(Layout((2, 5)), Layout(3))


# slices


@given(layouts(flat_shapes), st.data())
def test_slice_layout_keeps_the_strides_of_the_whole(layout, data):
    picks, index = [], []
    for mode in layout:
        n = mode.size()
        start = data.draw(st.integers(0, n - 1))
        stop = data.draw(st.integers(start + 1, n))
        step = data.draw(st.integers(1, 3))
        entry = data.draw(st.sampled_from([start, slice(start, stop, step), slice(None)]))
        index.append(entry)
        picks.append([entry] if isinstance(entry, int) else list(range(n))[entry])
    part = slice_layout(layout, tuple(index))
    assert enumerate_row_major(part) == [layout(c) for c in itertools.product(*picks)]
    assert part.rank == sum(isinstance(e, slice) for e in index)


@given(permuted(st.tuples(flat_shapes)), st.data())
def test_slice_layout_of_a_nested_mode_is_exact_or_refused(layout, data):
    n = layout.size()
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    refused, part = refusal(lambda: slice_layout(layout, (slice(start, stop),)))
    if refused is None:
        assert enumerate_row_major(part) == enumerate_row_major(layout)[start:stop]
    else:
        assert refused.code == "layout-composition"


def test_slice_layout_of_a_swizzled_panel_keeps_the_panel_stride():
    # Columns 64..127 of the post's B tile, (4,2,8) x (4,64): panel 1 starts at 1024.
    tile = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3)
    panel = slice_layout(tile, (slice(None), slice(64, 128)))
    assert panel.offset == 1024
    for k, n in itertools.product(range(64), range(64)):
        assert panel.address((k, n), 2) == tile.address((k, n + 64), 2)


def test_slice_layout_takes_symbols_in_unnested_modes():
    part = slice_layout(Layout((Symbol("n"), 128)), (slice(2, 5), slice(None)))
    assert part == Layout((3, 128)) + 256
    row = slice_layout(Layout((4, Symbol("n"))), (3, slice(None)))
    assert eval(str(row.offset), {"n": 50}) == 150
    assert row.layout == Layout((Symbol("n"),))


@pytest.mark.parametrize(
    "bad", [slice(2, 2), slice(-1, 2), slice(0, 9), slice(0, 4, 0), slice(3, 1)]
)
def test_slice_layout_refuses_ranges_that_do_not_fit(bad):
    with pytest.raises(Refusal, match="layout-slice"):
        slice_layout(Layout((8, 8)), (bad, slice(None)))


def test_slice_layout_refuses_another_rank_and_a_coordinate_outside():
    with pytest.raises(Refusal, match="layout-profile"):
        slice_layout(Layout((8, 8)), (1,))
    with pytest.raises(Refusal, match="layout-coordinate"):
        slice_layout(Layout((8, 8)), (8, slice(None)))


# CuTe's order


@given(layouts())
def test_to_cute_is_the_same_function_in_cutes_order(layout):
    assert enumerate_first_fastest(to_cute(layout)) == enumerate_row_major(layout)
    assert to_cute(to_cute(layout)) == layout


def test_cute_str_prints_cutes_notation():
    assert cute_str(complement(Layout(4, 2), 24)) == "(2,3):(1,8)"
    assert cute_str(coalesce(Layout((2, 4, 8, 4)))) == "(256):(1)"
    assert cute_str(Layout(((2, 3), 4), ((4, 8), 1))) == "(4,(3,2)):(1,(8,4))"


def L(shape, strides):
    """A layout written in CuTe's order."""
    return to_cute(Layout(shape, strides))


# Worked examples of CuTe's documentation, in its order.
CUTE = [
    (lambda: coalesce(L((2, (1, 6)), (1, (6, 2)))), "(12):(1)"),
    (lambda: coalesce(L((2, (1, 6)), (1, (6, 2))), (1, 1)), "(2,6):(1,2)"),
    (lambda: composition(L((6, 2), (8, 2)), L((4, 3), (3, 1))), "((2,2),3):((24,2),8)"),
    (lambda: composition(L((10, 2), (16, 4)), L((5, 4), (1, 5))), "(5,(2,2)):(16,(80,4))"),
    (lambda: composition(Layout(20, 2), L((5, 4), (4, 1))), "(5,4):(8,2)"),
    (
        lambda: composition(L((12, (4, 8)), (59, (13, 1))), (Layout(8, 2), Layout(3, 4))),
        "(3,(2,4)):(236,(26,1))",
    ),
    (lambda: complement(Layout(4, 1), 24), "(6):(4)"),
    (lambda: complement(Layout(6, 4), 24), "(4):(1)"),
    (lambda: complement(L((4, 6), (1, 4)), 24), "(1):(0)"),
    (lambda: complement(Layout(4, 2), 24), "(2,3):(1,8)"),
    (lambda: complement(L((2, 4), (1, 6)), 24), "(3):(2)"),
    (lambda: complement(L((2, 2), (1, 6)), 24), "(3,2):(2,12)"),
    (
        lambda: logical_divide(L((4, 2, 3), (2, 1, 8)), Layout(4, 2)),
        "((2,2),(2,3)):((4,1),(2,8))",
    ),
    (
        lambda: logical_divide(L((9, (4, 8)), (59, (13, 1))), (L((2, 4), (1, 8)), Layout(3, 3))),
        "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))",
    ),
    (
        lambda: zipped_divide(L((9, (4, 8)), (59, (13, 1))), (L((2, 4), (1, 8)), Layout(3, 3))),
        "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))",
    ),
    (
        lambda: logical_product(L((2, 2), (4, 1)), Layout(6, 1)),
        "((2,2),(2,3)):((4,1),(2,8))",
    ),
    (
        lambda: logical_product(L((2, 2), (4, 1)), L((4, 2), (2, 1))),
        "((2,2),(4,2)):((4,1),(8,2))",
    ),
    (
        lambda: blocked_product(L((2, 5), (5, 1)), L((3, 4), (1, 3))),
        "(6,(5,4)):(5,(1,30))",
    ),
    (
        lambda: raked_product(L((2, 5), (5, 1)), L((3, 4), (1, 3))),
        "((3,2),(4,5)):((10,5),(30,1))",
    ),
]


@pytest.mark.parametrize(("made", "text"), CUTE, ids=[text for _, text in CUTE])
def test_to_cute_results_match_cutes_documentation(made, text):
    assert cute_str(made()) == text


def test_composition_result_of_a_composed_layout_is_composed():
    assert isinstance(composition(Layout(8), Layout(4) + 2), ComposedLayout)
