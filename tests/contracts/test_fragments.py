"""Register fragments against the figures of the PTX ISA, by enumeration.

The formulas are those of the ISA's fragment descriptions, written out here again: thread t
of a warp, warp w of the group, registers in the instruction's order.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.targets.cuda.instr import mma, wgmma

BITS = {"bf16": 16, "f16": 16, "tf32": 32, "fp8e4m3": 8, "fp8e5m2": 8}
WARP_BITS = {**BITS, "i8": 8, "u8": 8}


def held(pattern, units, env):
    """{(unit, register): coordinate} of a fragment."""
    return {
        (unit, register): pattern.element(unit, register, env)
        for unit in product(*map(range, units))
        for register in range(pattern.count(env))
    }


def warpgroup(unit):
    warp, lane8, lane4 = unit
    return warp, 4 * lane8 + lane4


def d_of_wgmma(unit, register):
    """D: row = 16w + 8h + t/4, column = 8c + 2(t%4) + e; register = e + 2h + 4c."""
    warp, t = warpgroup(unit)
    e, h, c = register % 2, register // 2 % 2, register // 4
    return 16 * warp + 8 * h + t // 4, 8 * c + 2 * (t % 4) + e


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_wgmma_d_is_the_figure_and_a_bijection(n):
    env = wgmma.ATOM.completed({"n": n}, 16)
    seen = held(wgmma.C, (4, 8, 4), env)
    assert seen == {key: d_of_wgmma(*key) for key in seen}
    assert sorted(seen.values()) == list(product(range(64), range(n)))


@pytest.mark.parametrize("dtype", BITS)
def test_wgmma_a_in_registers(dtype):
    """A: row as D's, k = 4r·kh + r(t%4) + e with r elements in 32 bits; e, then h, then kh."""
    env = wgmma.ATOM.completed({"n": 8}, BITS[dtype])
    r = 32 // BITS[dtype]
    seen = held(wgmma.A_REGISTERS, (4, 8, 4), env)
    for (unit, register), crd in seen.items():
        warp, t = warpgroup(unit)
        e, h, kh = register % r, register // r % 2, register // (2 * r)
        assert crd == (16 * warp + 8 * h + t // 4, 4 * r * kh + r * (t % 4) + e)
    assert sorted(seen.values()) == list(product(range(64), range(256 // BITS[dtype])))


@pytest.mark.parametrize("dtype", WARP_BITS)
def test_mma_sync(dtype):
    """m16n8k(32 bytes): lane = 4 group + member. A: a row pair, then a k pair of halves;
    B: k halves; C: row halves."""
    env = mma.SM80.completed({}, WARP_BITS[dtype])
    r = 32 // WARP_BITS[dtype]
    k = 256 // WARP_BITS[dtype]
    for (unit, register), crd in held(mma.A, (4, 8), env).items():
        member, group = unit
        e, h, kh = register % r, register // r % 2, register // (2 * r)
        assert crd == (8 * h + group, 4 * r * kh + r * member + e)
    for (unit, register), crd in held(mma.B, (4, 8), env).items():
        member, group = unit
        assert crd == (4 * r * (register // r) + r * member + register % r, group)
    for (unit, register), crd in held(mma.C, (4, 8), env).items():
        member, group = unit
        assert crd == (8 * (register // 2) + group, 2 * member + register % 2)
    for pattern, shape in ((mma.A, (16, k)), (mma.B, (k, 8)), (mma.C, (16, 8))):
        seen = held(pattern, (4, 8), env)
        assert sorted(seen.values()) == list(product(*map(range, shape)))


def multiply(a, b, c, r):
    """mma.sync as the ISA states it: registers of 32 lanes in, registers out. ``a[lane]`` has
    4r elements, ``b[lane]`` 2r, ``c[lane]`` 4, in the instruction's order."""
    k = 8 * r
    lhs, rhs = np.zeros((16, k)), np.zeros((k, 8))
    for lane, i in product(range(32), range(4 * r)):
        word, e = divmod(i, r)  # words: rows g, g + 8, then the second half of k
        lhs[lane // 4 + 8 * (word % 2), lane % 4 * r + e + 4 * r * (word // 2)] = a[lane][i]
    for lane, i in product(range(32), range(2 * r)):
        word, e = divmod(i, r)
        rhs[lane % 4 * r + e + 4 * r * word, lane // 4] = b[lane][i]
    d = lhs @ rhs
    return [
        [c[lane][i] + d[lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2] for i in range(4)]
        for lane in range(32)
    ]


@pytest.mark.parametrize("dtype", WARP_BITS)
@pytest.mark.parametrize("swapped", [False, True])
def test_lanes_of_mma_sync_make_the_product(dtype, swapped):
    """Registers filled by the contract's fragments, multiplied lane-wise, read back by them;
    with the halves of A's registers exchanged it is another product."""
    env = mma.SM80.completed({}, WARP_BITS[dtype])
    rng = np.random.default_rng(1)
    k = 256 // WARP_BITS[dtype]
    a, b = rng.integers(-4, 5, (16, k)), rng.integers(-4, 5, (k, 8))
    c = rng.integers(-4, 5, (16, 8))
    order = replace(mma.A, registers=(4, 2, 0)) if swapped else mma.A

    def filled(pattern, tile):
        return [
            [
                tile[pattern.element((lane % 4, lane // 4), i, env)]
                for i in range(pattern.count(env))
            ]
            for lane in range(32)
        ]

    out = multiply(filled(order, a), filled(mma.B, b), filled(mma.C, c), 32 // WARP_BITS[dtype])
    got = np.zeros((16, 8))
    for lane, i in product(range(32), range(4)):
        got[mma.C.element((lane % 4, lane // 4), i, env)] = out[lane][i]
    assert np.array_equal(got, c + a @ b) != swapped


@pytest.mark.parametrize(
    ("element", "thread", "register"),
    [
        ((0, 0), 128, 0),
        ((0, 1), 128, 1),
        ((8, 0), 128, 2),
        ((1, 0), 132, 0),
        ((0, 2), 129, 0),
        ((0, 8), 128, 4),
        ((9, 3), 133, 3),
        ((16, 0), 160, 0),
        ((64, 0), 256, 0),
        ((127, 255), 383, 127),
    ],
)
def test_the_accumulator_table(element, thread, register):
    """Two consumer warpgroups from thread 128 on, 128 x 256 in all."""
    env = wgmma.ATOM.completed({"n": 256}, 16)
    group, unit = divmod(thread - 128, 128)
    row, column = wgmma.C.element((unit // 32, unit % 32 // 4, unit % 4), register, env)
    assert (row + 64 * group, column) == element


def test_a_wrong_register_order_is_seen():
    """Rows before pairs: still a bijection, no longer the figure."""
    env = wgmma.ATOM.completed({"n": 64}, 16)
    wrong = replace(wgmma.C, registers=(1, 5, 3))
    seen = held(wrong, (4, 8, 4), env)
    assert sorted(seen.values()) == list(product(range(64), range(64)))
    assert any(crd != d_of_wgmma(*key) for key, crd in seen.items())


def test_every_dtype_of_the_contracts_is_known():
    names = set(DTYPES) | {"tf32"}
    assert set(wgmma.HALF + wgmma.OTHER) <= names
