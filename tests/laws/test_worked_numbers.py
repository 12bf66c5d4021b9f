"""The worked numbers of meshes, wgmma tiles and accumulators, stated by hand."""

import itertools

import pytest

from tilefoundry.layout import (
    Layout,
    Swizzle,
    composition,
    cute_str,
    idx2crd,
    logical_divide,
    right_inverse,
    slice_layout,
)

MESH = Layout((3, 128), (128, 1))


def test_mesh_slice_of_two_warpgroups_keeps_its_offset():
    consumers = slice_layout(MESH, (slice(1, 3), slice(None)))
    assert consumers == Layout((2, 128), (128, 1)) + 128


def test_mesh_slice_of_one_warp_starts_at_zero():
    loader = slice_layout(MESH, (0, slice(0, 32)))
    assert loader == Layout((32,), (1,)) + 0
    assert [loader(i) for i in range(32)] == list(range(32))


def test_mesh_rearranged_keeps_strides_and_offset():
    consumers = slice_layout(MESH, (slice(1, 3), slice(None)))
    compute = composition(consumers, Layout((2, 4, 8, 4)))
    assert compute == Layout((2, 4, 8, 4), (128, 32, 4, 1)) + 128
    assert compute.layout.coalesce() == Layout(256, 1)
    assert cute_str(compute.layout.coalesce()) == "(256):(1)"


def test_mesh_rearranged_across_a_gap_keeps_the_gap():
    # Warpgroups 0 and 2 of four: threads 0..127 and 256..383.
    two = slice_layout(Layout((4, 128)), (slice(0, 4, 2), slice(None)))
    compute = composition(two, Layout((2, 4, 32)))
    assert compute == Layout((2, 4, 32), (256, 32, 1)) + 0


def test_mesh_slice_of_a_slice_adds_offsets():
    consumers = slice_layout(MESH, (slice(1, 3), slice(None)))
    last = slice_layout(consumers, (slice(1, 2), slice(96, 128)))
    assert last == Layout((1, 32), (128, 1)) + 352


# (group, warp, half, lane8, column block, lane4, element) -> tile address
ACCUMULATOR = Layout((2, 4, 2, 8, 32, 4, 2), (16384, 16, 8, 1, 512, 128, 64))
THREAD = Layout((2, 4, 2, 8, 32, 4, 2), (128, 32, 0, 4, 0, 1, 0)) + 128
REGISTER = Layout((2, 4, 2, 8, 32, 4, 2), (0, 0, 2, 0, 4, 0, 1))
ROW = Layout((2, 4, 2, 8), (64, 16, 8, 1))


@pytest.mark.parametrize(
    ("row", "col", "thread", "register", "nominal"),
    [
        (0, 0, 128, 0, 0),
        (0, 1, 128, 1, 64),
        (8, 0, 128, 2, 8),
        (1, 0, 132, 0, 1),
        (0, 2, 129, 0, 128),
        (0, 8, 128, 4, 512),
        (9, 3, 133, 3, 201),
        (16, 0, 160, 0, 16),
        (64, 0, 256, 0, 16384),
        (127, 255, 383, 127, 32767),
    ],
)
def test_accumulator_element_by_element(row, col, thread, register, nominal):
    # Rows are dense over (group, warp, half, lane8), columns over (block, lane4, element).
    assert ROW.is_compact()
    crd = (*idx2crd(row, (2, 4, 2, 8)), *idx2crd(col, (32, 4, 2)))
    assert THREAD(crd) == thread
    assert REGISTER(crd) == register
    assert ACCUMULATOR(crd) == nominal


def test_accumulator_owns_each_element_once():
    assert ACCUMULATOR.is_bijective()
    owners = list(zip(THREAD.layout.offsets(), REGISTER.offsets(), strict=True))
    assert len(set(owners)) == 256 * 128 == ACCUMULATOR.size()


def test_accumulator_addresses_are_column_major_in_a_group():
    to_row_col = right_inverse(ACCUMULATOR)
    for group, m, n in itertools.product(range(2), (0, 9, 63), (0, 3, 255)):
        # The index over the modes is row * 256 + col.
        assert to_row_col(16384 * group + m + 64 * n) == (64 * group + m) * 256 + n


def test_mma_sync_c_fragment_by_hand():
    # m16n8 C: (half, lane8) x (lane4, element) -> lane and register.
    lane = Layout(((2, 8), (4, 2)), ((0, 4), (1, 0)))
    register = Layout(((2, 8), (4, 2)), ((2, 0), (0, 1)))
    assert [(lane(c), register(c)) for c in [(0, 1), (8, 0), (1, 0)]] == [(0, 1), (0, 2), (4, 0)]


def test_wgmma_k_steps_advance_by_sixteen_elements():
    # Fragment of A per K step: ((8,8),16) with offsets 0, 16, 32, 48.
    tile = Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1)))
    steps = logical_divide(tile, (Layout((8, 8)), 16))
    assert steps[0] == Layout((2, (8, 8)), (4096, (512, 64)))
    assert [steps[1](k, 0) for k in range(4)] == [0, 16, 32, 48]
    assert steps[0][1] == Layout((8, 8), (512, 64))


def test_wgmma_b_tile_in_panels_of_64_columns():
    tile = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3)
    # Row 1 is one 128-byte row on: chunk 0 moves to chunk 1 of it.
    assert tile.address((1, 0), 2) == 128 + 16
    assert tile.address((1, 8), 2) == 128
    # Column 64 starts the second panel, 2 KiB on; k = 16 the next 8 KiB.
    assert tile.address((0, 64), 2) == 2048
    assert tile.address((16, 0), 2) == 8192
    assert tile.address((63, 255), 2) == 2 * (3 * 4096 + 512 + 7 * 64 + 3 * 1024) + 2 * 7
