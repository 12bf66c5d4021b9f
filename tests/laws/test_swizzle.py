"""Laws of swizzles and composed layouts, and the worked byte addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import enumerate_row_major, layouts, permuted, swizzles

from tilefoundry.diag import Refusal
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

addresses = st.integers(0, 1 << 20)


def by_bits(b, m, s, x):
    """The definition one bit at a time, on strings of binary digits."""
    bits = [(x >> k) & 1 for k in range(40)]
    source, target = (m + s, m) if s > 0 else (m, m - s)
    swapped = list(bits)
    for k in range(b):
        swapped[target + k] = bits[target + k] ^ bits[source + k]
    return sum(bit << k for k, bit in enumerate(swapped))


@given(swizzles, addresses)
def test_swizzle_call_is_its_definition(bms, x):
    assert Swizzle(*bms)(x) == by_bits(*bms, x)


def test_swizzle_mask_by_hand():
    assert Swizzle(3, 4, 3).mask == 0b1110000000  # bits 7-9
    assert Swizzle(3, 4, -3).mask == 0b1110000  # bits 4-6
    assert Swizzle(0, 4, 3).mask == 0


@given(swizzles)
def test_swizzle_is_involution_agrees_with_trying(bms):
    swizzle = Swizzle(*bms)
    # Bits below M never change, so one address per chunk of a period decides.
    chunks = range(0, swizzle.period, 1 << swizzle.M)
    assert swizzle.is_involution == all(swizzle(swizzle(x)) == x for x in chunks)


@given(swizzles, addresses)
def test_swizzle_inverse_undoes_it(bms, x):
    swizzle = Swizzle(*bms)
    assert swizzle.inverse(swizzle(x)) == x
    assert swizzle(swizzle.inverse(x)) == x


@given(swizzles, addresses)
def test_swizzle_period_is_the_least(bms, x):
    swizzle = Swizzle(*bms)
    assert swizzle(x + swizzle.period) == swizzle(x) + swizzle.period
    half = swizzle.period // 2
    assert half == 0 or any(swizzle(y + half) != swizzle(y) + half for y in range(swizzle.period))


@pytest.mark.parametrize(("b", "span"), [(3, 128), (2, 64), (1, 32), (0, 16)])
def test_swizzle_span_is_the_hardware_name(b, span):
    assert Swizzle(b, 4, 3).span == span


@given(st.integers(0, 3), addresses)
def test_swizzle_span_keeps_bytes_in_their_span(b, x):
    swizzle = Swizzle(b, 4, 3)
    assert swizzle(x) // swizzle.span == x // swizzle.span


@pytest.mark.parametrize("bms", [(-1, 4, 3), (3, -4, 3), (3, 4, 0), (3, 4, 3.0), (True, 4, 3)])
def test_swizzle_refuses_what_is_no_permutation(bms):
    with pytest.raises(Refusal, match="layout-swizzle"):
        Swizzle(*bms)


# facts: the post's A tile, 128 x 64 bf16, 128-byte rows
@pytest.mark.parametrize(
    ("coordinate", "byte"),
    [((1, 0), 144), ((1, 8), 128), ((7, 0), 1008), ((8, 0), 1024), ((64, 0), 8192), ((1, 16), 176)],
)
@pytest.mark.parametrize(
    "tile",
    [
        Layout((128, 64)),
        Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))),
    ],
)
def test_composed_byte_address_of_the_a_tile(tile, coordinate, byte):
    swizzled = tile | Swizzle(3, 4, 3)
    assert swizzled.byte_address(coordinate, 16) == byte
    assert swizzled.address(coordinate, 2) == byte


def test_composed_byte_address_is_the_128_byte_swizzle():
    # Hardware: 16-byte chunk c of 128-byte row r lies in chunk c ^ (r mod 8).
    tile = Layout((128, 64)) | Swizzle(3, 4, 3)
    for r in range(128):
        for c in range(64):
            assert tile.address((r, c), 2) == 128 * r + 16 * ((c // 8) ^ (r % 8)) + 2 * (c % 8)


@pytest.mark.parametrize(
    ("layout", "shape", "span"),
    [
        (Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))), (128, 64), 16 * 1024),
        (Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))), (64, 256), 32 * 1024),
        (Layout((128, (4, 64)), (64, (8192, 1))), (128, 256), 64 * 1024),
    ],
)
def test_composed_address_of_wgmma_tiles_fills_its_buffer(layout, shape, span):
    assert (layout[0].size(), layout[1].size()) == shape
    assert layout.is_injective() and layout.is_bijective()
    swizzled = layout | Swizzle(3, 4, 3)
    taken = sorted(swizzled.address(i, 2) for i in range(layout.size()))
    assert taken == list(range(0, span, 2))


@given(layouts(), st.integers(0, 40), swizzles, st.sampled_from([1, 2, 4, 8]))
def test_composed_address_swizzles_the_whole_byte_address(layout, offset, bms, width):
    composed = layout + offset | Swizzle(*bms)
    for base in (0, 4096 + 16):
        got = [composed.address(i, width, base) for i in range(layout.size())]
        want = [by_bits(*bms, base + width * o) for o in enumerate_row_major(layout + offset)]
        assert got == want


def test_composed_byte_address_of_narrow_elements_shares_bytes():
    tile = Layout((4, 8)) + 2
    assert [tile.byte_address(i, 4) for i in range(6)] == [1, 1, 2, 2, 3, 3]


@given(layouts(), st.integers(0, 40))
def test_composed_linear_and_call_add_the_offset(layout, offset):
    moved = layout + offset
    want = [o + offset for o in enumerate_row_major(layout)]
    assert [moved(i) for i in range(moved.size())] == want
    assert [moved.linear(i) for i in range(moved.size())] == want
    assert (moved | Swizzle(3, 4, 3)).linear(0) == offset


def test_composed_call_refuses_a_swizzle_without_width():
    with pytest.raises(Refusal, match="layout-swizzle-width"):
        (Layout((8, 64)) | Swizzle(3, 4, 3))(1, 0)


@given(permuted(), st.integers(0, 9))
def test_composed_size_and_rank_and_shape_are_the_layouts(layout, offset):
    composed = layout + offset | Swizzle(3, 4, 3)
    assert composed.size() == layout.size()
    assert composed.rank == layout.rank
    assert composed.shape == layout.shape


@given(layouts())
def test_composed_is_injective_agrees_with_addresses(layout):
    composed = layout + 3 | Swizzle(2, 1, 2)
    taken = [composed.address(i, 2) for i in range(layout.size())]
    assert composed.is_injective() == (len(set(taken)) == len(taken))


def test_composed_adds_before_it_swizzles():
    layout = Layout((8, 64))
    assert (layout + 16) + 4 == layout + 20
    assert layout + 16 | Swizzle(3, 4, 3) == ComposedLayout(Swizzle(3, 4, 3), 16, layout)
    for late in (lambda s: s + 16, lambda s: s | Swizzle(3, 4, 3)):
        with pytest.raises(Refusal, match="layout-swizzle-order"):
            late(layout | Swizzle(3, 4, 3))
    for wrong in (layout, layout + 1):
        with pytest.raises(Refusal, match="layout-swizzle"):
            wrong | 3
    for offset in (-1, 1.5, (1, 2), "a"):
        with pytest.raises(Refusal, match="layout-extent"):
            layout + offset


def test_composed_record_is_the_explicit_form():
    mesh = Layout(((4, 8, 4),), ((32, 4, 1),))
    assert (mesh + 128).record() == (
        "ComposedLayout(None, 128, Layout(((4, 8, 4),), ((32, 4, 1),)))"
    )
