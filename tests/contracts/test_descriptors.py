"""wgmma's matrix descriptors, re-expanded to byte addresses as the PTX ISA defines them.

Model, for element (mn, k) of an atom that starts at byte s, all of size z:
K-major, no swizzle: core matrices of 8 rows x 16 bytes; ``lead`` apart along K, ``stride``
along MN. K-major, swizzled: rows of one span; ``stride`` between groups of 8 rows.
MN-major, no swizzle: 16 bytes of MN x 8 k; ``stride`` apart along MN, ``lead`` along K.
MN-major, swizzled: a span of MN x 8 k; ``lead`` apart along MN, ``stride`` along K.
Then address bits 4.. are XORed with bits 7.., as many as the span has.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tilefoundry.ir.dtype import BF16, DTYPES, F32
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.place import Window, place
from tilefoundry.targets.cuda.instr.wgmma import ATOM, descriptor

GROUP = Mesh(arrange("thread", (4, 8, 4), ("warp", "lane8", "lane4")))
SW = {16: None, 32: Swizzle(1, 4, 3), 64: Swizzle(2, 4, 3), 128: Swizzle(3, 4, 3)}
MODE = {16: 0, 128: 1, 64: 2, 32: 3}


def addressed(d, major, size, start, mn, k):
    """The byte of element (mn, k) of the atom that starts at ``start``."""
    if major == "K" and d.span == 16:
        at = mn // 8 * d.stride + mn % 8 * 16 + k * size // 16 * d.lead + k * size % 16
    elif major == "K":
        at = mn // 8 * d.stride + mn % 8 * d.span + k * size
    else:
        width = d.span // size
        groups, deep = (d.stride, d.lead) if d.span == 16 else (d.lead, d.stride)
        at = mn // width * groups + k // 8 * deep + k % 8 * d.span + mn % width * size
    linear = start + at
    bits = {16: 0, 32: 1, 64: 2, 128: 3}[d.span]
    return linear ^ ((linear >> 7 & ((1 << bits) - 1)) << 4)


def canonical(major, span, mn, k, size, pad=0):
    """A tile (mn, k): panels of one span, ``pad`` core matrices apart more than they need."""
    width = span // size
    if major == "MN":
        panel = k * width + pad * 8 * width
        part = Layout(((mn // width, width), k), ((panel, 1), width))
    else:
        panel = mn * width + pad * 8 * width
        part = Layout((mn, (k // width, width)), (width, (panel, 1)))
    return part | SW[span] if SW[span] else part + 0


def operand(name, tile, layout, dtype):
    """(lhs, rhs, acc) where operand ``name`` is the (mn, k) tile ``tile`` and the other fits."""
    kind = DTYPES[dtype]
    size = kind.bits // 8
    mn, k = tile
    m, n = (mn, 8) if name == "A" else (64, mn)
    other = canonical("K", 32, 8 if name == "A" else 64, k, size)
    mine = layout_from(layout)
    flip = replace(mine, shape=mine.shape[::-1], stride=mine.stride[::-1])
    if name == "A":
        lhs, rhs = mine, layout_from(other)
        rhs = replace(rhs, shape=rhs.shape[::-1], stride=rhs.stride[::-1])
    else:
        lhs, rhs = layout_from(other), flip
    warp, lane8, lane4 = GROUP.axes
    acc = layout_from((m // 64, Split(4, warp), 2, Split(8, lane8), n // 8, Split(4, lane4), 2))
    return (
        TensorType((m, k), kind, lhs, "smem"),
        TensorType((k, n), kind, rhs, "smem"),
        TensorType((m, n), F32, acc, "rmem"),
    )


def arrangements():
    for dtype, size in (("bf16", 2), ("f16", 2), ("f32", 4), ("fp8e4m3", 1), ("fp8e5m2", 1)):
        for major in ("K", "MN") if size == 2 else ("K",):
            for span in (16, 32, 64, 128):
                yield dtype, size, major, span


@pytest.mark.parametrize(("dtype", "size", "major", "span"), [*arrangements()])
@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("pad", [0, 1])
def test_every_descriptor_addresses_the_layout(name, dtype, size, major, span, pad):
    """Two atoms along m (or every n that the span divides) by two spans along k."""
    k = 2 * max(span // size, 32 // size)
    width = span // size
    for mn in (128,) if name == "A" else (8, 24, 136, 256):
        if major == "MN" and mn % width:
            continue
        layout = canonical(major, span, mn, k, size, pad)
        lhs, rhs, acc = operand(name, (mn, k), layout, dtype)
        want = "tf32" if dtype == "f32" else dtype
        given = {"dtype": want, f"{name.lower()}_major": major, "form": "SS"}
        found = judge(ATOM, GROUP, lhs, rhs, acc, given)
        assert isinstance(found, Fit), found
        tile = place(lhs if name == "A" else rhs)
        d = descriptor(found, name, tile)
        unit, depth = (64 if name == "A" else found.parameters["n"]), found.atom[2]
        assert d.span == span and depth == 32 // size
        for i, j in product(range(mn // unit), range(k // depth)):
            start = d.start(i, j)
            assert start % 16 == 0
            for a, b in product(range(0, unit, 5), range(depth)):
                got = addressed(d, major, size, start, a, b)
                crd = (i * unit + a, j * depth + b)
                assert got == layout.byte_address(crd, size * 8), (d, crd)


def fit_of(lhs_layout, rhs_layout):
    mesh = Mesh(arrange("thread", (2, 4, 8, 4), ("group", "warp", "lane8", "lane4"), offset=128))
    group, warp, lane8, lane4 = mesh.axes
    acc = layout_from((Split(2, group), Split(4, warp), 2, Split(8, lane8), 32, Split(4, lane4), 2))
    lhs = TensorType((128, 64), BF16, layout_from(lhs_layout), "smem")
    rhs = TensorType((64, 256), BF16, layout_from(rhs_layout), "smem")
    found = judge(ATOM, mesh, lhs, rhs, TensorType((128, 256), F32, acc, "rmem"))
    assert isinstance(found, Fit)
    return found, place(lhs), place(rhs)


A_POST = Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))) | Swizzle(3, 4, 3)
B_POST = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3)
B_NATURAL = Layout(((8, 8), (4, 64)), ((512, 64), (4096, 1))) | Swizzle(3, 4, 3)


def test_the_posts_descriptors():
    found, a, b = fit_of(A_POST, B_POST)
    lhs, rhs = descriptor(found, "A", a), descriptor(found, "B", b)
    assert (lhs.stride, lhs.k_starts, lhs.mn_starts) == (1024, (0, 32, 64, 96), (0, 8192))
    assert (rhs.lead, rhs.stride, rhs.k_starts) == (2048, 1024, (0, 8192, 16384, 24576))
    found, a, b = fit_of(A_POST, B_NATURAL)
    rhs = descriptor(found, "B", b)
    assert (rhs.lead, rhs.stride, rhs.k_starts) == (8192, 1024, (0, 2048, 4096, 6144))


def test_the_encoding():
    """Start, lead and stride without their low four bits at 0, 16 and 32; the mode at 62."""
    found, _, b = fit_of(A_POST, B_POST)
    word = descriptor(found, "B", b).encode(0x2400)
    assert word & 0x3FFF == 0x240
    assert word >> 16 & 0x3FFF == 2048 // 16
    assert word >> 32 & 0x3FFF == 1024 // 16
    assert word >> 62 == MODE[128]
    assert word >> 49 & 7 == 0  # base offset: the buffer starts at a multiple of 1024


def test_a_slice_of_a_tile_lies_as_the_tile_does():
    """k 64..127 of a (128, 128) tile in two panels: the second panel, not a layout of its own."""
    whole = TensorType((128, 128), BF16,
                       layout_from(Layout((128, (2, 64)), (64, (8192, 1))) | Swizzle(3, 4, 3)),
                       "smem")  # fmt: skip
    part = TensorType((128, 64), BF16, None, "smem")
    window = Window(whole, (0, 1), (0, 64))
    warp, lane8, lane4 = GROUP.axes
    acc = layout_from((2, Split(4, warp), 2, Split(8, lane8), 32, Split(4, lane4), 2))
    rhs = TensorType((64, 256), BF16, layout_from(B_POST), "smem")
    out = TensorType((128, 256), F32, acc, "rmem")
    found = judge(ATOM, GROUP, part, rhs, out, windows=(window, None))
    assert isinstance(found, Fit), found
    lhs = place(part, window)
    assert lhs.base == 8192
    assert descriptor(found, "A", lhs).k_starts == (0, 32, 64, 96)
    # judged by its own row-major strides it would be refused
    assert isinstance(judge(ATOM, GROUP, part, rhs, out), Unmet)


def test_a_wrong_descriptor_is_seen():
    """Lead and stride exchanged, or another span: other bytes."""
    found, _, b = fit_of(A_POST, B_POST)
    right = descriptor(found, "B", b)
    for wrong in (replace(right, lead=right.stride, stride=right.lead), replace(right, span=64)):
        places = {
            (n, k): B_POST.byte_address(((0, k // 8, k % 8), (n // 64, n % 64)), 16)
            for n, k in product(range(256), range(16))
        }
        assert any(addressed(wrong, "MN", 2, 0, *at) != byte for at, byte in places.items())
