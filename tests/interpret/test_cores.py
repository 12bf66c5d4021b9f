"""Cores: lanes go in step, cores do not; matrix instructions add as their contracts say."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernels import Block, Cores, copy, kinds

from tilefoundry.dsl import T
from tilefoundry.interpret import POLICIES, run
from tilefoundry.interpret.arithmetic import fused
from tilefoundry.interpret.sums import add
from tilefoundry.ir.dtype import BF16, F32
from tilefoundry.ir.mesh import Coord
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.targets.contract.pattern import MmaAtom
from tilefoundry.targets.contract.registry import contract_at, declared
from tilefoundry.tir.program import Buffer, Issue, Scalar, whole, window

# ---- order


def twice(b, size):
    """Each unit stores its element behind its place, then in it, and loads from behind it."""
    x, out = b.param("x", (size,)), b.param("out", (size,), role="out")
    work = Buffer("work", (size + 1,), F32, "gmem")
    b.buffers.append(work)
    held, after = b.per_thread("held", size), b.per_thread("after", size)
    here, behind = (window(whole(work), (n,), (size,)) for n in (0, 1))
    return b.func(
        copy(x, held), copy(held, behind), copy(held, here), copy(behind, after), copy(after, out)
    )


@pytest.mark.parametrize("lanes", [4, 16, 40])
def test_the_lanes_of_a_core_go_in_step(lanes):
    x = torch.randn(lanes)
    found = run(twice(Cores(lanes), lanes), [x])
    assert found.reports == []
    assert torch.equal(found.outputs[0], torch.cat([x[1:], x[-1:]]))


def test_threads_do_not():
    assert "race" in kinds(run(twice(Block(32), 32), [torch.randn(32)]))


def parts(apart, lanes=8, cores=3):
    """Each core stores its part of x, ``apart`` elements from the next one's."""
    b = Cores(lanes, cores)
    x = b.param("x", (lanes * cores,))
    out = b.param("out", (apart * (cores - 1) + lanes,), role="out")
    held = b.per_thread("held", lanes)
    axis = b.grid.axes[0]
    core = Coord(axis.name, 0, cores - 1, axis=axis).expr()
    mine = window(whole(x), (core * lanes,), (lanes,))
    return b.func(copy(mine, held), copy(held, window(whole(out), (core * apart,), (lanes,))))


@pytest.mark.parametrize("policy", POLICIES)
def test_cores_race_on_device_memory(policy):
    x = torch.randn(24)
    found = run(parts(8), [x], policy=policy)
    assert found.reports == []
    assert torch.equal(found.outputs[0], x)
    (report,) = run(parts(7), [x], policy=policy, limit=1).reports
    assert report.kind == "race"
    assert report.buffer == "out"


# ---- vectors


def mma(acc, lhs, rhs, atom, repeat):
    views = [whole(x) for x in (acc, lhs, rhs)]
    attrs = {"atom": atom, "repeat": repeat, "serial": repeat, "order": (0, 1, 2)}
    return Issue("tiled_mma", tuple(views), (views[0],), attrs)


def zero(buffer, instr="fill"):
    return Issue(instr, (Scalar(0.0, buffer.dtype),), (whole(buffer),), {"op": "fill"})


FMA = T.x86.avx512.FmaPs(dtype="f32", a="rmem", b="rmem")


def outer(order):
    """One row times one column of vectors in registers; B's columns are dealt to the lanes as
    ``order`` says, C's in the order of the lanes."""
    b = Cores(16)
    x, y = b.param("x", (1, 1)), b.param("y", (1, 16))
    out = b.param("out", (1, 16), role="out")

    def body(mesh):
        axes = mesh.at("lane")
        a = b.held("a", (1, 1), (1, 1), (None, None), mesh)
        c = b.held("c", (1, 16), (1, 4, 4), (None, *axes), mesh)
        v = b.held("v", (1, 16), (1, 4, 4), (None, *(axes[n] for n in order)), mesh)
        product = mma(c, a, v, FMA, (1, 1, 1))
        return copy(x, a), copy(y, v), zero(c), product, copy(c, out)

    return b.func(b.arranged((4, 4), ("hi", "lo"), body))


def test_each_lane_adds_what_it_holds():
    x, y = torch.randn(1, 1), torch.randn(1, 16)
    found = run(outer((0, 1)), [x, y])
    assert found.reports == []
    assert torch.equal(found.outputs[0], x * y)


def test_a_lane_does_not_see_the_registers_of_another():
    assert kinds(run(outer((1, 0)), [torch.randn(1, 1), torch.randn(1, 16)])) == {"not-held"}


def test_an_operand_that_some_lanes_have_not_loaded():
    b = Cores(16)
    x, y = b.param("x", (1, 1)), b.param("y", (1, 16))
    out = b.param("out", (1, 16), role="out")
    lane = b.block.axes[0]
    a = b.held("a", (1, 1), (1, 1), (None, None))
    v, c = (b.held(n, (1, 16), (1, 16), (None, lane)) for n in "vc")
    load = b.scope(0, 8, copy(x, a))
    func = b.func(load, copy(y, v), zero(c), mma(c, a, v, FMA, (1, 1, 1)), copy(c, out))
    found = run(func, [torch.randn(1, 1), torch.randn(1, 16)])
    assert kinds(found) == {"uninitialised"}
    assert "threads 8..15" in str(found.reports[0])


# ---- tiles

PAIRS = ShardLayout((16, 2, 16), (32, 1, 2), (None, None, None))
LOAD, STORE = "x86.amx.TileLoad", "x86.amx.TileStore"
DOT = T.x86.amx.TdpBf16Ps(dtype="bf16")


def tiles(at_a=1024, at_b=2048, rows=16):
    """C = A · B by one tile each; B comes in pairs along k. ``rows`` of A are loaded."""
    b = Cores(16)
    x, y = b.param("x", (16, 32), BF16), b.param("y", (32, 16), BF16)
    out = b.param("out", (16, 16), role="out")
    c, a = b.file("c", (16, 16)), b.file("a", (16, 32), BF16, at_a)
    v = b.file("v", (32, 16), BF16, at_b, PAIRS)
    some = [window(whole(t), (0, 0), (rows, 32)) for t in (x, a)]
    return b.func(
        zero(c, "x86.amx.TileZero"), copy(*some, LOAD), copy(y, v, LOAD),
        mma(c, a, v, DOT, (1, 1, 1)), copy(c, out, STORE),
    )  # fmt: skip


def operands():
    return torch.randn(16, 32).bfloat16(), torch.randn(32, 16).bfloat16()


def test_a_tile_product():
    x, y = operands()
    found = run(tiles(), [x, y])
    assert found.reports == []
    exact = x.double() @ y.double()
    bound = 34 * 2.0**-24 * (x.double().abs() @ y.double().abs())
    assert bool(((found.outputs[0].double() - exact).abs() <= bound).all())


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"at_b": 1024}, "overlap", "reads a [0, 0] whose bytes a write of v replaced"),
        ({"at_a": 0}, "overlap", "reads c [0, 0] whose bytes a write of a replaced"),
        ({"at_b": 8192}, "bounds", "v leaves the 8192 bytes of tmem"),
        ({"at_b": 2056}, "overlap", "v is not aligned to 1024 bytes"),
        ({"rows": 15}, "uninitialised", "reads a [15, 0] that nobody wrote"),
    ],
)
def test_tiles_that_are_not_what_they_should_be(options, kind, says):
    (report, *_) = run(tiles(**options), [*operands()]).reports
    assert report.kind == kind
    assert says in report.says


# ---- arithmetic


def nearest(x, bits, least):
    """``x`` rounded to ``bits`` of mantissa, ties to even; exponents from ``least`` on."""
    if x == 0:
        return Fraction(0)
    unit = Fraction(1)
    while abs(x) >= unit * 2**bits:
        unit *= 2
    while abs(x) < unit * 2 ** (bits - 1) and unit > Fraction(2) ** least:
        unit /= 2
    return round(x / unit) * unit


FORMATS = {
    torch.float16: (np.float16, 11, -24),
    torch.float32: (np.float32, 24, -149),
    torch.float64: (np.float64, 53, -1074),
}


@given(st.data(), st.sampled_from(list(FORMATS)))
def test_a_multiply_add_rounds_once(data, dtype):
    kind, bits, least = FORMATS[dtype]
    width = kind(0).nbytes * 8
    small = 2.0 ** (width // 8)
    numbers = st.floats(-small, small, width=width, allow_subnormal=False)
    a, b = data.draw(numbers), data.draw(numbers)
    # sums near a tie, where two roundings differ from one
    tie = st.sampled_from([kind(a) * kind(b), kind(a * b), kind(1), kind(small)])
    c = float(data.draw(tie)) * data.draw(st.sampled_from([-1, 1, 2.0**-9, 2.0**9, 0]))
    c = float(kind(c))
    want = nearest(Fraction(a) * Fraction(b) + Fraction(c), bits, least)
    if 0 < abs(Fraction(a) * Fraction(b)) < Fraction(2) ** -900:
        return  # the error of the product is no float64
    (got,) = fused(*(np.array([float(v)]) for v in (a, b, c)), dtype)
    assert Fraction(float(got)) == want


def one(path, start, lhs, rhs, dtype=torch.float32):
    """One step of an instruction for one sum, zeros where no product is given."""
    contract = contract_at(path)
    width = sum(map(len, contract.sums.chains))
    wide = np.float64 if dtype.is_floating_point else np.int64
    pad = [0] * (width - len(lhs))
    a, b = (np.array([[*x, *pad]], wide) for x in (lhs, rhs))
    (out,) = add(contract.sums, np.array([start], wide), a, b, dtype)
    return out


HALF = 2.0**-24
"""Half a unit in the last place of 1: added to 1 it is lost, twice it is not."""


def test_the_dot_product_of_pairs_adds_the_high_half_first():
    assert one("x86.avx512.DpBf16Ps", 1.0, [HALF, -1.0], [1.0, 1.0]) == HALF
    assert one("x86.avx512.DpBf16Ps", 1.0, [-1.0, HALF], [1.0, 1.0]) == 0.0


def test_tiles_sum_even_and_odd_products_apart():
    assert one("x86.amx.TdpBf16Ps", 1.0, [HALF, HALF], [1.0, 1.0]) == 1 + 2 * HALF
    assert one("x86.amx.TdpBf16Ps", 1.0, [HALF, 0.0, 0.0, HALF], [1.0] * 4) == 1 + 2 * HALF
    # 1 + HALF is 1 in the even chain, HALF stays in the odd one
    assert one("x86.amx.TdpBf16Ps", 0.0, [1.0, HALF, HALF], [1.0] * 3) == 1.0


@pytest.mark.parametrize("path", ["x86.avx512.DpBusd", "x86.amx.TdpBusd"])
def test_sums_of_bytes_wrap(path):
    most = 2**31 - 1
    assert one(path, most, [255, 1], [127, 1], torch.int32) == most + 255 * 127 + 1 - 2**32
    assert one(path, -most, [255], [-128], torch.int32) == -most - 255 * 128 + 2**32


ALONE = [
    c for family in ("cpu", "apple_amx") for c in declared(family) if isinstance(c, MmaAtom)
]  # fmt: skip


@pytest.mark.parametrize("contract", ALONE, ids=lambda c: c.path)
def test_chains_are_the_places_along_k(contract):
    a = contract.operand("A", {"a": "gmem", "b": "gmem", "acc": "f32"})
    assert sorted(k for chain in contract.sums.chains for k in chain) == list(range(a.shape[1]))
