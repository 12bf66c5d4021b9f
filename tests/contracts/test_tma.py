"""Tensor maps, expanded as the ISA defines them and compared with the two layouts.

Model: element (c0, c1, ...) of a box, c0 fastest, is written to consecutive shared memory
from the issue's start; of that address bits 4.. are XORed with bits 7.. (one, two or three
bits for spans of 32, 64, 128). It is read from dims and byte strides; outside the dims it is
filled with zeros (a load) or not written (a store).
"""

from __future__ import annotations

from itertools import product

import pytest

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ir.expr import LoopVar
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Window, place
from tilefoundry.targets.cuda.instr.tma import TensorMap, tensor_map

SW = {32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3), 128: Swizzle(3, 4, 3)}
A_POST = Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))) | SW[128]
B_POST = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | SW[128]
B_NATURAL = Layout(((8, 8), (4, 64)), ((512, 64), (4096, 1))) | SW[128]
C_STAGED = Layout((128, (4, 64)), (64, (8192, 1))) | SW[128]


def mapped(shape, layout, whole, starts, dtype="bf16", axes=(0, 1), far=None):
    kind = DTYPES[dtype]
    tile = place(TensorType(shape, kind, layout_from(layout), "smem"))
    parent = TensorType(whole, kind, layout_from(far) if far is not None else None)
    return tensor_map(tile, Window(parent, axes, starts))


def moved(plan: TensorMap, starts):
    """{byte in shared memory: byte in global memory, None outside} over all issues."""
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[plan.swizzle]
    size = plan.bits // 8
    out = {}
    for issue in plan.issues:
        first = [a + b for a, b in zip(plan.coordinates(starts), issue.coordinates, strict=True)]
        for n, box in enumerate(product(*(range(b) for b in reversed(plan.box)))):
            at = [f + c for f, c in zip(first, reversed(box), strict=True)]
            linear = issue.smem + n * size
            address = linear ^ ((linear >> 7 & ((1 << bits) - 1)) << 4)
            inside = all(0 <= c < d for c, d in zip(at, plan.dims, strict=True))
            byte = at[0] * size + sum(
                c * s for c, s in zip(at[1:], plan.strides_bytes, strict=True)
            )
            assert address not in out
            out[address] = byte if inside else None
    return out


def stated(shape, layout, whole, starts, size, strides):
    """The same from the two layouts."""
    smem = layout if hasattr(layout, "byte_address") else layout + 0
    out = {}
    for crd in product(*map(range, shape)):
        at = [s + c for s, c in zip(starts, crd, strict=True)]
        inside = all(c < e for c, e in zip(at, whole, strict=True))
        byte = sum(c * s for c, s in zip(at, strides, strict=True)) * size
        out[smem.byte_address(crd, size * 8)] = byte if inside else None
    return out


@pytest.mark.parametrize(
    ("shape", "layout", "whole", "dims", "strides", "box"),
    [
        ((128, 64), A_POST, (8192, 5120), (5120, 8192), (10240,), (64, 128)),
        ((64, 256), B_POST, (5120, 17408), (64, 16, 272, 320), (34816, 128, 557056),
         (64, 16, 4, 4)),
        ((64, 256), B_NATURAL, (5120, 17408), (64, 5120, 272), (34816, 128), (64, 64, 4)),
        ((128, 256), C_STAGED, (8192, 17408), (64, 8192, 272), (34816, 128), (64, 128, 4)),
    ],
)  # fmt: skip
def test_the_posts_maps(shape, layout, whole, dims, strides, box):
    found = mapped(shape, layout, whole, (128, 256) if shape[0] == 128 else (64, 512))
    assert isinstance(found, TensorMap), found
    assert (found.dims, found.strides_bytes, found.box) == (dims, strides, box)
    assert (found.swizzle, found.align, len(found.issues)) == (128, 1024, 1)
    assert found.bytes == 2 * shape[0] * shape[1]


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32", "f64"])
@pytest.mark.parametrize("form", ["panels", "rows"])
def test_every_swizzle_moves_what_the_layouts_say(span, dtype, form):
    """Panels of one span each, or rows that two spans lie in; the last tile of each axis is
    ragged, but for the rows' columns: cut into spans they must be whole."""
    size = DTYPES[dtype].bits // 8
    width = (span or 32) // size
    rows, columns = 24, 2 * width
    nested = ((rows, (2, width)), (width, (rows * width, 1)))
    layout = Layout(*nested) if form == "panels" else Layout((rows, columns), (columns, 1))
    layout = layout | SW[span] if span else layout
    ragged = 16 // size if form == "panels" else 0
    extents = (rows + 11, 3 * columns - ragged)
    for starts in ((0, 0), (rows, columns), (0, 2 * columns)):
        found = mapped((rows, columns), layout, extents, starts, dtype)
        assert isinstance(found, TensorMap), found
        want = stated((rows, columns), layout, extents, starts, size, (extents[1], 1))
        assert moved(found, starts) == want
        assert found.bytes * len(found.issues) == len(want) * size


def test_a_column_major_tensor():
    """Axis 0 is contiguous on both sides: the box's innermost dimension runs along it."""
    layout = Layout(((2, 64), 32), ((2048, 1), 64)) | SW[128]
    far = Layout((256, 96), (1, 256))
    found = mapped((128, 32), layout, (256, 96), (128, 32), far=far)
    assert isinstance(found, TensorMap), found
    assert found.box == (64, 32, 2)
    want = stated((128, 32), layout, (256, 96), (128, 32), 2, (1, 256))
    assert moved(found, (128, 32)) == want


def test_a_transposed_view():
    """Tile (n, k) of a (K, N) tensor: its axes run along the tensor's in the other order."""
    layout = Layout(((2, 64), 32), ((2048, 1), 64)) | SW[128]
    found = mapped((128, 32), layout, (96, 256), (32, 128), axes=(1, 0))
    assert isinstance(found, TensorMap), found
    got = moved(found, (32, 128))
    assert len(got) == 128 * 32
    for n, k in product(range(128), range(32)):
        assert got[layout.byte_address((n, k), 16)] == 2 * ((32 + k) * 256 + 128 + n)


def test_a_batched_tensor_has_its_index_as_a_coordinate():
    var = LoopVar("b", 0, 6)
    tile = place(TensorType((64, 64), DTYPES["bf16"], layout_from(Layout((64, 64)) | SW[128]),
                            "smem"))  # fmt: skip
    whole = TensorType((7, 128, 256), DTYPES["bf16"])
    found = tensor_map(tile, Window(whole, (None, 0, 1), (var.expr(), 64, 128)))
    assert isinstance(found, TensorMap), found
    assert (found.dims, found.box) == ((256, 128, 7), (64, 64, 1))
    assert found.coordinates((var.expr(), 64, 128)) == (128, 64, var.expr())


def test_a_tile_beyond_a_box_is_several_issues():
    layout = Layout((512, 64)) | SW[128]
    found = mapped((512, 64), layout, (1024, 128), (512, 64))
    assert (found.box, found.repeat) == ((64, 256), (2, 1))
    assert [(i.smem, i.coordinates) for i in found.issues] == [(0, (0, 0)), (32768, (0, 256))]
    assert moved(found, (512, 64)) == stated((512, 64), layout, (1024, 128), (512, 64), 2, (128, 1))


def test_ragged_blocks_fall_back_to_one_dimension_for_each_axis():
    """17400 columns are no multiple of 64: blocks would wrap into the next row."""
    found = mapped((64, 256), B_NATURAL, (5120, 17400), (64, 17152))
    assert (found.dims, found.box, found.repeat) == ((17400, 5120), (64, 64), (1, 4))
    want = stated((64, 256), B_NATURAL, (5120, 17400), (64, 17152), 2, (17400, 1))
    assert moved(found, (64, 17152)) == want
    # so does a start between blocks
    found = mapped((64, 256), B_NATURAL, (128, 512), (8, 8))
    assert moved(found, (8, 8)) == stated((64, 256), B_NATURAL, (128, 512), (8, 8), 2, (512, 1))


def test_the_order_of_issues():
    found = mapped((512, 256), Layout((512, (4, 64)), (64, (32768, 1))) | SW[128], (4100, 4104),
                   (0, 0))  # fmt: skip
    assert found.repeat == (2, 4)
    rows_first = [p.turn for p in found.ordered((1, 0))]
    assert rows_first[:3] == [(0, 0), (1, 0), (0, 1)]
    assert [p.turn for p in found.ordered((0, 1))][:3] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("clause", "change"),
    [
        ("dtype", {"dtype": "f4e2m1"}),
        ("swizzle", {"layout": Layout((64, 64)) | Swizzle(3, 3, 3)}),
        # the global rows are 65 elements, 130 bytes apart
        ("stride", {"whole": (256, 65)}),
        # shared memory holds columns together, global memory rows
        ("layout", {"layout": Layout((64, 64), (1, 64)) | SW[128]}),
        ("layout", {"far": Layout(((4, 64), 256), ((100000, 256), 1))}),
        # 128-byte rows under a 64-byte swizzle are cut; 64-byte rows under 128 are not rows
        ("box", {"shape": (64, 32), "layout": Layout((64, 32)) | SW[128]}),
        ("box", {"shape": (64, 4), "layout": Layout((64, 4))}),
        # rows of 72 elements: each row is its own box, and does not start at 128 bytes
        ("alignment", {"layout": Layout((64, 64), (72, 1))}),
        ("alignment", {"layout": (Layout((64, 64)) + 32) | SW[128]}),
    ],
)  # fmt: skip
def test_refusals(clause, change):
    use = {"shape": (64, 64), "layout": Layout((64, 64)) | SW[128], "whole": (256, 256),
           "starts": (0, 0)} | change  # fmt: skip
    found = mapped(**use)
    assert isinstance(found, Unmet), found
    assert found.clause == clause, found


@pytest.mark.parametrize(("rows", "fits"), [(1 << 31, True), ((1 << 31) + 128, False)])
def test_coordinates_are_words(rows, fits):
    found = mapped((128, 64), A_POST, (rows, 64), (rows - 128, 0))
    assert isinstance(found, TensorMap) if fits else found.clause == "extent"


def test_six_axes_are_refused():
    shape = (2, 2, 2, 2, 2, 8)
    tile = place(TensorType(shape, DTYPES["bf16"], None, "smem"))
    whole = TensorType((4, 4, 4, 4, 4, 16), DTYPES["bf16"])
    found = tensor_map(tile, Window(whole, tuple(range(6)), (0,) * 6))
    assert isinstance(found, Unmet) and found.clause == "rank"


def test_what_would_fit_can_be_pasted():
    found = mapped((64, 128), Layout((64, 128), (1, 64)), (256, 256), (0, 0))
    assert isinstance(found, Unmet)
    pasted = eval(found.fix, {"Layout": Layout, "Swizzle": Swizzle})
    assert isinstance(mapped((64, 128), pasted, (256, 256), (0, 0)), TensorMap)


def test_a_wrong_map_is_seen():
    """The proof fails for a swizzle, a stride or an alignment that is not the layout's."""
    right = mapped((128, 64), A_POST, (256, 128), (128, 64))
    want = stated((128, 64), A_POST, (256, 128), (128, 64), 2, (128, 1))
    assert moved(right, (128, 64)) == want
    other = Layout((128, 64)) | SW[64]
    assert stated((128, 64), other, (256, 128), (128, 64), 2, (128, 1)) != want
    assert moved(mapped((128, 64), A_POST, (256, 136), (128, 64)), (128, 64)) != want
