"""Copies but TMA: matrix loads lane by lane, pieces that cover once, widths, bulk runs."""

from __future__ import annotations

from itertools import product

import pytest

from tilefoundry.ir.dtype import BF16, DTYPES, F16, F32
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.targets.contract.align import alignment
from tilefoundry.targets.contract.copy import Side
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.place import Window
from tilefoundry.targets.contract.runs import Pieces
from tilefoundry.targets.cuda.instr.bulk import COPY_ASYNC_BULK, BulkRuns
from tilefoundry.targets.cuda.instr.cp_async import COPY_ASYNC, cache
from tilefoundry.targets.cuda.instr.matrix import LDMATRIX, STMATRIX, MatrixPlan
from tilefoundry.targets.cuda.instr.tma import COPY_ASYNC_TENSOR
from tilefoundry.targets.cuda.instr.wgmma import ATOM
from tilefoundry.targets.generic.instr.copy import COPY

SW = {32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3), 128: Swizzle(3, 4, 3)}
WARP = Mesh(arrange("thread", (8, 4), ("lane8", "lane4")))
LANE8, LANE4 = WARP.axes
WARPS = Mesh(arrange("thread", (2, 4, 8, 4), ("group", "warp", "lane8", "lane4"), offset=128))


def typed(shape, layout, dtype=BF16, storage="smem"):
    return TensorType(shape, dtype, layout_from(layout) if layout is not None else None, storage)


def moved(instr, mesh, source, target, source_window=None, target_window=None):
    sides = Side(source, source_window), Side(target, target_window)
    return instr.judge("thread", mesh, *sides)


# ldmatrix and stmatrix


def a_fragment(registers=(4, 0, 2)):
    """A of m16n8k16: row = 8h + lane/4, k = 8kh + 2(lane%4) + e; registers e, h, kh."""
    layout = (2, Split(8, LANE8), 2, Split(4, LANE4), 2)
    return Side(typed((16, 16), layout, storage="rmem"), registers=registers)


def b_fragment():
    """B of m16n8k16, two of them: k = 8kh + 2(lane%4) + e, n = 8 + lane/4."""
    layout = (2, Split(4, LANE4), 2, 2, Split(8, LANE8))
    return Side(typed((16, 16), layout, storage="rmem"), registers=(2, 0, 3))


def a_of(lane, register):
    return 8 * (register // 2 % 2) + lane // 4, 8 * (register // 4) + 2 * (lane % 4) + register % 2


def b_of(lane, register):
    return 8 * (register // 2 % 2) + 2 * (lane % 4) + register % 2, 8 * (register // 4) + lane // 4


def received(plan, layout, issue, size=2):
    """{(lane, element register): byte} by the ISA's description of ldmatrix."""
    rows = [layout.byte_address(plan.coordinate(issue, lane), size * 8) for lane in range(32)]
    out = {}
    for lane, matrix, e in product(range(32), range(plan.count), range(plan.packed)):
        if plan.trans:
            byte = rows[8 * matrix + 2 * (lane % 4) + e] + 2 * (lane // 4)
        else:
            byte = rows[8 * matrix + lane // 4] + 4 * (lane % 4) + e * size
        out[lane, (issue * plan.count + matrix) * plan.packed + e] = byte
    return out


@pytest.mark.parametrize(
    ("held", "figure", "layout", "trans"),
    [
        (a_fragment(), a_of, Layout((16, 16)) | SW[32], False),
        (a_fragment(), a_of, Layout((16, 16), (24, 1)) + 0, False),
        (a_fragment(), a_of, Layout((16, 16), (64, 1)) | SW[128], False),
        (a_fragment(), a_of, Layout((16, 16), (1, 16)) | SW[32], True),
        (b_fragment(), b_of, Layout((16, 16)) | SW[32], True),
        (b_fragment(), b_of, Layout((16, 16), (1, 16)) | SW[32], False),
    ],
)
def test_the_lanes_receive_the_fragment(held, figure, layout, trans):
    memory = typed((16, 16), layout)
    found = LDMATRIX.judge("thread", WARP, Side(memory), held)
    assert isinstance(found, MatrixPlan), found
    assert (found.count, found.issues, found.trans) == (4, 1, trans)
    for (lane, register), byte in received(found, layout, 0).items():
        assert byte == layout.byte_address(figure(lane, register), 16)
    back = STMATRIX.judge("thread", WARP, held, Side(memory))
    assert back == MatrixPlan(4, 1, trans, 2, back.fragment)


def test_a_wrong_register_order_is_another_matrix():
    """k halves before row halves: the same rows, in other registers than the ISA's."""
    layout = Layout((16, 16)) | SW[32]
    found = LDMATRIX.judge("thread", WARP, Side(typed((16, 16), layout)), a_fragment((4, 2, 0)))
    assert isinstance(found, MatrixPlan)
    bytes_ = received(found, layout, 0)
    assert any(b != layout.byte_address(a_of(*at), 16) for at, b in bytes_.items())


@pytest.mark.parametrize(("dtype", "packed"), [("fp8e4m3", 4), ("f32", 1)])
def test_other_widths_by_rows_of_sixteen_bytes(dtype, packed):
    kind = DTYPES[dtype]
    columns = 8 * packed
    inner = (2, Split(4, LANE4), packed) if packed > 1 else (2, Split(4, LANE4))
    held = Side(typed((8, columns), (Split(8, LANE8), *inner), kind, "rmem"))
    if packed > 1:  # fastest first: the packed elements, then the halves
        held = Side(held.type, registers=(3, 1))
    layout = Layout((8, columns)) | SW[32]
    found = LDMATRIX.judge("thread", WARP, Side(typed((8, columns), layout, kind)), held)
    assert isinstance(found, MatrixPlan), found
    size = kind.bits // 8
    assert (found.count, found.trans) == (2, False)
    for (lane, register), byte in received(found, layout, 0, size).items():
        half, e = divmod(register, packed)
        crd = lane // 4, 4 * packed * half + packed * (lane % 4) + e
        assert byte == layout.byte_address(crd, kind.bits)


@pytest.mark.parametrize(
    ("clause", "layout"),
    [
        # rows of 17 elements: 34 bytes apart
        ("alignment", Layout((16, 16), (17, 1))),
        ("alignment", Layout((16, 16), (20, 1))),
        # every second element
        ("rows", Layout((16, 16), (32, 2))),
        # 8-byte chunks exchanged: a row is not contiguous
        ("alignment", Layout((16, 16)) | Swizzle(1, 3, 3)),
    ],
)
def test_rows_that_are_not_sixteen_bytes_are_refused(clause, layout):
    found = LDMATRIX.judge("thread", WARP, Side(typed((16, 16), layout)), a_fragment())
    assert isinstance(found, Unmet), found
    assert found.clause == clause
    pasted = eval(found.fix, {"Layout": Layout, "Swizzle": Swizzle})
    assert isinstance(
        LDMATRIX.judge("thread", WARP, Side(typed((16, 16), pasted)), a_fragment()), MatrixPlan
    )


def test_fragments_that_are_not_the_instructions():
    layout = Layout((16, 16)) | SW[32]
    rows = Side(typed((16, 16), (4, Split(4, LANE4), Split(8, LANE8), 2), storage="rmem"))
    found = LDMATRIX.judge("thread", WARP, Side(typed((16, 16), layout)), rows)
    assert isinstance(found, Unmet) and found.clause == "fragment"
    whole = Side(typed((16, 16), None, storage="rmem"))
    found = LDMATRIX.judge("thread", WARP, Side(typed((16, 16), layout)), whole)
    assert isinstance(found, Unmet) and found.clause == "fragment"
    half = Mesh(arrange("thread", (4, 4), ("lane8", "lane4")))
    found = LDMATRIX.judge("thread", half, Side(typed((16, 16), layout)), a_fragment())
    assert isinstance(found, Unmet) and found.clause == "mesh"


def test_the_posts_store():
    """The accumulator (cast to bf16) by stmatrix: 16 x4 of a warp's 16 x 256 part."""
    group, warp, lane8, lane4 = WARPS.axes
    layout = (Split(2, group), Split(4, warp), 2, Split(8, lane8), 32, Split(4, lane4), 2)
    held = Side(typed((128, 256), layout, storage="rmem"), registers=(6, 2, 4))
    staged = Layout((128, (4, 64)), (64, (8192, 1))) | SW[128]
    found = STMATRIX.judge("thread", WARPS, held, Side(typed((128, 256), staged)))
    assert isinstance(found, MatrixPlan), found
    assert (found.count, found.issues, found.trans) == (4, 16, False)
    # thread 300: group 1, warp 1, lane 12 gives row 4 of matrix 1: rows 8 on of its 16
    assert found.coordinate(0, 300) == (64 + 16 + 8 + 4, 0)
    assert found.coordinate(3, 300) == (64 + 16 + 8 + 4, 48)


def test_as_many_matrices_as_lie_alike_in_each_issue():
    """Of 14 octets of columns four at a time would reach into the next rows: 14 x2, no 7 x4."""
    _, warp, lane8, lane4 = WARPS.axes
    for octets, count, issues in ((14, 2, 14), (12, 4, 6), (7, 1, 14)):
        layout = (Split(4, warp), 2, Split(8, lane8), octets, Split(4, lane4), 2)
        held = Side(typed((64, octets * 8), layout, storage="rmem"))
        place = Side(typed((64, octets * 8), Layout((64, octets * 8))))
        found = STMATRIX.judge("thread", Mesh(WARPS.axes[1:]), held, place)
        assert isinstance(found, MatrixPlan), found
        assert (found.count, found.issues) == (count, issues)
        rows = {t: found.coordinate(0, t) for t in range(32)}
        for q in range(issues):
            begin = found.coordinate(q, 0)
            moved = {t: (a + begin[0], b + begin[1]) for t, (a, b) in rows.items()}
            assert moved == {t: found.coordinate(q, t) for t in range(32)}


# Pieces


@pytest.mark.parametrize(
    ("layout", "row", "size"),
    [
        (Layout((32, 64)) | SW[128], 128, 16),
        (Layout((32, 64), (72, 1)), 128, 16),
        (Layout((32, 64), (68, 1)), 128, 8),
        (Layout((32, 64), (66, 1)), 128, 4),
        (Layout((32, 64)), 132, 8),
        (Layout((32, 64)), 130, 4),
        (Layout((32, (8, 8)), (8, (256, 1))), 128, 16),
    ],
)
@pytest.mark.parametrize("units", [32, 96])
def test_pieces_cover_every_byte_once(layout, row, size, units):
    mesh = Mesh(arrange("thread", (units,), ("t",)))
    window = Window(typed((256, row), None, storage="gmem"), (0, 1), (32, 64))
    found = moved(COPY_ASYNC, mesh, typed((32, 64), None, storage="gmem"),
                  typed((32, 64), layout), window)  # fmt: skip
    assert isinstance(found, Pieces), found
    assert found.size == size and cache(size) == ("cg" if size == 16 else "ca")
    smem = layout if hasattr(layout, "byte_address") else layout + 0
    seen = {}
    for number in range(found.count):
        cells = [found.element(number, n) for n in range(found.elements)]
        near = [smem.byte_address(c, 16) for c in cells]
        far = [2 * ((32 + r) * row + 64 + c) for r, c in cells]
        for ends in (near, far):
            assert ends[0] % size == 0
            assert ends == list(range(ends[0], ends[0] + size, 2))
        seen |= dict.fromkeys(cells, number)
    assert sorted(seen) == list(product(range(32), range(64)))
    assert found.count * found.elements == 32 * 64
    assert found.rounds == -(-found.count // units)
    # neighbouring pieces follow global memory: a row of pieces, then the next row
    per_row = 128 // size
    assert [found.element(n) for n in (0, 1, per_row)] == [(0, 0), (0, size // 2), (1, 0)]


@pytest.mark.parametrize("layout", [Layout((32, 64), (1, 32)), Layout((32, 64), (65, 1))])
def test_pieces_below_four_bytes_are_refused(layout):
    found = moved(COPY_ASYNC, WARP, typed((32, 64), None, storage="gmem"), typed((32, 64), layout))
    assert isinstance(found, Unmet) and found.clause == "pieces"
    pasted = eval(found.fix, {"Layout": Layout, "Swizzle": Swizzle})
    found = moved(COPY_ASYNC, WARP, typed((32, 64), None, storage="gmem"), typed((32, 64), pasted))
    assert isinstance(found, Pieces)


def test_a_window_that_starts_between_pieces():
    window = Window(typed((256, 128), None, storage="gmem"), (0, 1), (0, 2))
    found = moved(COPY_ASYNC, WARP, typed((32, 64), None, storage="gmem"),
                  typed((32, 64), Layout((32, 64))), window)  # fmt: skip
    assert found.size == 4


# Bulk


def test_bulk_runs():
    window = Window(typed((256, 128), None, storage="gmem"), (0, 1), (32, 64))
    rows = moved(COPY_ASYNC_BULK, WARP, typed((32, 64), None, storage="gmem"),
                 typed((32, 64), None), window)  # fmt: skip
    assert isinstance(rows, BulkRuns)
    assert (rows.bytes, rows.repeat) == (128, (32, 1))
    assert rows.starts() == tuple((n, 0) for n in range(32))
    whole = moved(
        COPY_ASYNC_BULK, WARP, typed((32, 128), None), typed((32, 128), None, storage="gmem")
    )
    assert (whole.bytes, whole.repeat) == (8192, (1, 1))


@pytest.mark.parametrize(
    ("clause", "layout", "start"),
    [
        ("swizzle", Layout((32, 64)) | SW[128], 64),
        ("run", Layout((32, 64), (1, 32)), 64),
        ("alignment", Layout((32, 64), (68, 1)), 64),
        ("alignment", Layout((32, 64)), 4),
    ],
)
def test_bulk_refusals(clause, layout, start):
    window = Window(typed((256, 128), None, storage="gmem"), (0, 1), (0, start))
    found = moved(COPY_ASYNC_BULK, WARP, typed((32, 64), None, storage="gmem"),
                  typed((32, 64), layout), window)  # fmt: skip
    assert isinstance(found, Unmet) and found.clause == clause, found


# The plain copy


@pytest.mark.parametrize(
    ("held", "layout", "size"),
    [
        # two neighbouring bf16 of a fragment are 4 bytes
        ((2, Split(8, LANE8), 2, Split(4, LANE4), 2), Layout((16, 16)) | SW[32], 4),
        # 8 elements of one unit in a row are 16 bytes
        ((Split(8, LANE8), 2, 2, 8), Layout((16, 16)) | SW[32], 16),
        ((Split(8, LANE8), 2, 2, 8), Layout((16, 16), (20, 1)), 8),
        ((Split(8, LANE8), 2, 2, 8), Layout((16, 16), (17, 1)), 2),
        ((Split(8, LANE8), 2, 2, 8), Layout((16, 16), (1, 16)), 4),
    ],
)
def test_widths_of_the_plain_copy(held, layout, size):
    registers = typed((16, 16), held, storage="rmem")
    store = moved(COPY, WARP, registers, typed((16, 16), layout))
    assert (store.read, store.write) == (0, size)
    load = moved(COPY, WARP, typed((16, 16), layout), registers)
    assert (load.read, load.write) == (size, 0)


def test_the_plain_copy_is_always_legal():
    for dtype in (BF16, F32):
        tile = typed((32, 64), Layout((32, 64), (1, 33)), dtype)
        found = moved(COPY, WARP, typed((32, 64), None, dtype, "gmem"), tile)
        assert (found.read, found.write) == (dtype.bits // 8, dtype.bits // 8)


def test_no_copy_converts():
    for instr in (COPY_ASYNC_TENSOR, COPY_ASYNC_BULK, COPY_ASYNC):
        found = moved(instr, WARP, typed((32, 64), None, BF16, "gmem"), typed((32, 64), None, F16))
        assert isinstance(found, Unmet) and found.clause == "dtype"


@pytest.mark.parametrize(
    ("contract", "swizzle", "bytes_"),
    [
        (COPY_ASYNC_TENSOR, None, 128),
        (COPY_ASYNC_TENSOR, SW[32], 256),
        (COPY_ASYNC_TENSOR, SW[64], 512),
        (COPY_ASYNC_TENSOR, SW[128], 1024),
        (ATOM, None, 16),
        (ATOM, SW[128], 1024),
        (COPY_ASYNC_BULK, None, 16),
        (LDMATRIX, None, 16),
        (COPY, None, 2),
    ],
)
def test_alignment_of_buffers(contract, swizzle, bytes_):
    layout = Layout((64, 64)) | swizzle if swizzle else Layout((64, 64))
    assert alignment(contract, typed((64, 64), layout)) == bytes_
