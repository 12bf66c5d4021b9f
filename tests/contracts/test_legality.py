"""Legality of matrix instructions: the posts' tiles, worked repeats, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from tilefoundry.ir.dtype import BF16, DTYPES, F16, F32
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.cuda.instr.mma import SM80
from tilefoundry.targets.cuda.instr.wgmma import ATOM

NAMES = ("group", "warp", "lane8", "lane4")
CONSUMERS = Mesh(arrange("thread", (2, 4, 8, 4), NAMES, offset=128), (("thread", 384),))
GROUP, WARP, LANE8, LANE4 = CONSUMERS.axes

A_POST = Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))) | Swizzle(3, 4, 3)
B_POST = Layout(((4, 2, 8), (4, 64)), ((4096, 512, 64), (1024, 1))) | Swizzle(3, 4, 3)
B_NATURAL = Layout(((8, 8), (4, 64)), ((512, 64), (4096, 1))) | Swizzle(3, 4, 3)
C_POST = (
    (Split(2, GROUP), Split(4, WARP), 2, Split(8, LANE8), 32, Split(4, LANE4), 2),
    (16384, 16, 8, 1, 512, 128, 64),
)


def shared(shape, layout, dtype=BF16):
    return TensorType(shape, dtype, layout_from(layout), "smem")


def registers(shape, layout, dtype=F32):
    return TensorType(shape, dtype, layout_from(layout), "rmem")


A, B, C = shared((128, 64), A_POST), shared((64, 256), B_POST), registers((128, 256), C_POST)


def use(lhs=A, rhs=B, acc=C, mesh=CONSUMERS, **given):
    return judge(ATOM, mesh, lhs, rhs, acc, given)


def test_the_posts_gemm():
    found = use()
    assert isinstance(found, Fit)
    assert found.parameters == {
        "n": 256, "dtype": "bf16", "form": "SS", "a_major": "K", "b_major": "MN",
    }  # fmt: skip
    assert (found.repeat, found.bind, found.serial) == ((2, 1, 4), (2, 1, 1), (1, 1, 4))
    # distances of core matrices in elements: 8 rows of 64; 64-wide groups, 8-deep groups
    assert found.arrangements["A"]["l"] == 512
    assert (found.arrangements["B"]["l"], found.arrangements["B"]["s"]) == (1024, 512)


def test_the_natural_layout_of_b():
    found = use(rhs=shared((64, 256), B_NATURAL))
    assert isinstance(found, Fit)
    assert (found.arrangements["B"]["l"], found.arrangements["B"]["s"]) == (4096, 512)


def test_smaller_atoms_when_n_is_given():
    found = use(n=64)
    assert isinstance(found, Fit)
    assert found.repeat == (2, 4, 4)


@pytest.mark.parametrize(
    ("clause", "change"),
    [
        ("mesh", {"mesh": Mesh(arrange("thread", (3, 128), ("wg", "p")))}),
        ("mesh", {"mesh": Mesh(arrange("thread", (2, 4, 8, 4), NAMES, offset=96))}),
        ("parameter", {"n": 260}),
        ("parameter", {"n": 12}),
        ("dtype", {"acc": registers((128, 256), C_POST, F16)}),
        ("dtype", {"rhs": shared((64, 256), B_POST, F16)}),
        ("storage", {"rhs": TensorType((64, 256), BF16, layout_from(B_POST), "gmem")}),
        ("shape", {"n": 96}),
        # rows 72 elements apart, not 64
        ("A", {"lhs": shared((128, 64), Layout((128, 64), (72, 1)) | Swizzle(3, 4, 3))}),
        # the right strides, the wrong swizzle span
        ("A", {"lhs": shared((128, 64), Layout((128, 64), (64, 1)) | Swizzle(2, 4, 3))}),
        # a swizzle no mode of the instruction has
        ("A", {"lhs": shared((128, 64), Layout((128, 64), (64, 1)) | Swizzle(3, 3, 3))}),
        # plain row-major B of 256-element rows: no 8-deep groups of one span
        ("B", {"rhs": shared((64, 256), Layout((64, 256), (256, 1)) | Swizzle(3, 4, 3))}),
        # lane8 and the row halves swapped: another element in each register
        ("C", {"acc": registers((128, 256), (Split(2, GROUP), Split(4, WARP), Split(8, LANE8), 2,
                                              32, Split(4, LANE4), 2))}),
        # columns not split at all
        ("C", {"acc": registers((128, 256), (Split(2, GROUP), Split(4, WARP), 2, Split(8, LANE8),
                                              256))}),
    ],
)  # fmt: skip
def test_the_deepest_unmet_clause(clause, change):
    found = use(**change)
    assert isinstance(found, Unmet), found
    assert found.clause == clause, found


def test_what_would_fit_can_be_pasted():
    plain = TensorType((128, 256), F32, None, "rmem")
    found = use(acc=plain)
    assert isinstance(found, Unmet)
    assert found.fix == (
        "(2 @ compute.group, 4 @ compute.warp, 2, 8 @ compute.lane8, 32, 4 @ compute.lane4, 2)"
    )
    row_major = TensorType((64, 256), BF16, None, "smem")
    found = use(rhs=row_major)
    assert isinstance(found, Unmet) and found.clause == "B"
    pasted = eval(found.fix, {"Layout": Layout, "Swizzle": Swizzle})
    assert isinstance(use(rhs=shared((64, 256), pasted)), Fit)
    found = use(lhs=TensorType((128, 64), BF16, None, "smem"))
    assert isinstance(found, Unmet) and found.clause == "A"
    pasted = eval(found.fix, {"Layout": Layout, "Swizzle": Swizzle})
    assert isinstance(use(lhs=shared((128, 64), pasted)), Fit)


def descriptor_bytes(major, span, lead, stride, element):
    """Byte address of (mn, k) as the ISA's matrix descriptor defines it, 16-bit operands.

    Swizzle: the 16-byte chunk index is XORed with the row number modulo span / 16.
    """
    mn, k = element
    width = span // 2
    if major == "K":
        linear = (mn // 8) * stride + (mn % 8) * span + 2 * k
    else:
        linear = (mn // width) * lead + (k // 8) * stride + (k % 8) * span + 2 * (mn % width)
    chunk, rest = linear // 16, linear % 16
    rows = span // 16
    return (chunk ^ (linear // 128 % rows if rows > 1 else 0)) * 16 + rest


def test_accepted_layouts_are_what_the_descriptor_addresses():
    for m, k in product(range(64), range(16)):
        crd = ((m // 64, m % 64 // 8, m % 8), (k // 16, k % 16))
        assert A_POST.byte_address(crd, 16) == descriptor_bytes("K", 128, 0, 1024, (m, k))
    for k, n in product(range(16), range(256)):
        crd = ((k // 16, k % 16 // 8, k % 8), (n // 64, n % 64))
        assert B_POST.byte_address(crd, 16) == descriptor_bytes("MN", 128, 2048, 1024, (n, k))


@pytest.mark.parametrize("blocked", [True, False])
def test_mma_sync_on_four_warps(blocked):
    """64 x 32 x 32 on (2, 2) warps: repeat (4, 4, 2) = bind (2, 2, 1) x serial (2, 2, 2), with
    the warps' atoms next to each other or interleaved."""
    mesh = Mesh(arrange("thread", (2, 2, 4, 8), ("wm", "wn", "l4", "l8"), (64, 32, 1, 4)))
    wm, wn, l4, l8 = mesh.axes
    rows = (Split(2, wm), 2) if blocked else (2, Split(2, wm))
    columns = (Split(2, wn), 2) if blocked else (2, Split(2, wn))
    acc = registers((64, 32), (*rows, 2, Split(8, l8), *columns, Split(4, l4), 2))
    lhs = registers((64, 32), (*rows, 2, Split(8, l8), 2, 2, Split(4, l4), 2), F16)
    rhs = registers((32, 32), (2, 2, Split(4, l4), 2, *columns, Split(8, l8)), F16)
    found = judge(SM80, mesh, lhs, rhs, acc)
    assert isinstance(found, Fit), found
    assert (found.repeat, found.bind, found.serial) == ((4, 4, 2), (2, 2, 1), (2, 2, 2))


@pytest.mark.parametrize(
    ("dtype", "acc", "fits"),
    [
        ("f16", "f32", True), ("f16", "f16", True), ("bf16", "f32", True),
        ("bf16", "bf16", False), ("f32", "f32", True), ("i8", "i32", True), ("u8", "i32", True),
        ("i8", "f32", False),
    ],
)  # fmt: skip
def test_what_mma_sync_multiplies(dtype, acc, fits):
    """One warp, 16 x 8 x (32 bytes), its axes in either order."""
    kind = DTYPES[dtype]
    r, k = 32 // kind.bits, 256 // kind.bits
    for shape, names, strides in (((4, 8), ("l4", "l8"), (1, 4)), ((8, 4), ("l8", "l4"), (4, 1))):
        mesh = Mesh(arrange("thread", shape, names, strides))
        l4, l8 = mesh.find("l4"), mesh.find("l8")
        tail = (r,) if r > 1 else ()
        lhs = registers((16, k), (2, Split(8, l8), 2, Split(4, l4), *tail), kind)
        rhs = registers((k, 8), (2, Split(4, l4), *tail, Split(8, l8)), kind)
        out = registers((16, 8), (2, Split(8, l8), Split(4, l4), 2), DTYPES[acc])
        # f32 operands are rounded to tf32 only where the author says so
        found = judge(SM80, mesh, lhs, rhs, out, {"dtype": "tf32"} if dtype == "f32" else {})
        assert isinstance(found, Fit) == fits, found
        if dtype == "f32":
            found = judge(SM80, mesh, lhs, rhs, out)
            assert isinstance(found, Unmet) and found.clause == "parameter"
            continue
        if isinstance(found, Unmet):
            assert found.clause == "dtype"


class Bound:
    """``extent @ axis`` of a pasted layout."""

    def __init__(self, axis):
        self.axis = axis

    def __rmatmul__(self, extent):
        return Split(extent, self.axis)


def test_a_refused_storage_names_the_fragment_to_bring():
    """Two warps on 32 x 16 x 32: C and A get the warps along m, B is whole on both."""
    mesh = Mesh(arrange("thread", (2, 4, 8), ("wm", "l4", "l8"), (32, 1, 4)))
    scope = SimpleNamespace(**{a.name: Bound(a) for a in mesh.axes})
    tiles = {
        "C": TensorType((32, 16), F32, None, "smem"),
        "A": shared((32, 32), Layout((32, 32)), F16),
        "B": shared((32, 16), Layout((32, 16)), F16),
    }
    for _ in range(3):
        found = judge(SM80, mesh, tiles["A"], tiles["B"], tiles["C"])
        assert isinstance(found, Unmet) and found.clause == "storage"
        name = found.expected[0]
        text = found.fix.removeprefix("tf.reshard(..., ").removesuffix(', "rmem")')
        layout = eval(text, {"compute": scope})
        tiles[name] = registers(tiles[name].shape, layout, tiles[name].dtype)
    found = judge(SM80, mesh, tiles["A"], tiles["B"], tiles["C"])
    assert isinstance(found, Fit), found
    assert (found.bind, found.serial) == ((2, 1, 1), (1, 2, 2))


def split_k(partial, split=True):
    """Two warps that share 16 x 8 and halve k = 32: each adds its half of the products."""
    mesh = Mesh(arrange("thread", (2, 4, 8), ("wk", "l4", "l8"), (32, 1, 4)))
    wk, l4, l8 = mesh.axes
    half = Split(2, wk) if split else 2
    lhs = registers((16, 32), (2, Split(8, l8), half, 2, Split(4, l4), 2), F16)
    rhs = registers((32, 8), (half, 2, Split(4, l4), 2, Split(8, l8)), F16)
    out = layout_from((2, Split(8, l8), Split(4, l4), 2))
    out = replace(out, partial=((wk, "sum"),) if partial else ())
    return judge(SM80, mesh, lhs, rhs, TensorType((16, 8), F32, out, "rmem"))


def test_groups_that_share_k_make_partial_sums():
    found = split_k(partial=True)
    assert isinstance(found, Fit)
    assert (found.bind, found.serial) == ((1, 1, 2), (1, 1, 1))
    for use in ((False, True), (True, False)):
        found = split_k(*use)
        assert isinstance(found, Unmet) and found.clause == "C", use
    # both whole on each warp: each makes the whole sum
    assert isinstance(split_k(partial=False, split=False), Fit)


def test_fp8_operands_are_k_major_only():
    e4m3 = DTYPES["fp8e4m3"]
    found = judge(ATOM, CONSUMERS, shared((128, 64), Layout((128, 64), (128, 1)), e4m3),
                  shared((64, 256), B_POST, e4m3), C, {"b_major": "MN"})  # fmt: skip
    assert isinstance(found, Unmet) and found.clause == "parameter"
