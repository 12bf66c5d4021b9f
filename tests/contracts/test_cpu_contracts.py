"""Matrix instructions of CPUs: how operands lie, by enumeration; what is legal and what not.

The layouts of a contract place a matrix in memory or registers; the manual's own loops, written
out here again, then compute the product from there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout
from tilefoundry.targets.apple_amx.instr.amx import CONTRACTS as APPLE
from tilefoundry.targets.contract.copy import CopyInstr, Side
from tilefoundry.targets.contract.legality import Fit, Unmet, judge
from tilefoundry.targets.contract.pattern import FragmentPattern, MmaAtom, SharedPattern
from tilefoundry.targets.contract.rows import Rows
from tilefoundry.targets.cpu.instr.amx import CONTRACTS as TILES
from tilefoundry.targets.cpu.instr.vector import CONTRACTS as VECTORS

EVERY = {c.path: c for c in (*VECTORS, *TILES, *APPLE)}
VECTOR = [c.path for c in VECTORS]
TILED = [c.path for c in TILES if isinstance(c, MmaAtom)]
RANGE = {"u8": (0, 256), "i8": (-128, 128)}


def operand(path, name, **given):
    env = {"dtype": "", "a": "gmem", "b": "gmem", "acc": "f32", **given}
    return EVERY[path].operand(name, env)


def drawn(dtype, shape, seed):
    """Values that ``dtype`` represents, as float64 or int64."""
    stream = np.random.default_rng(seed)
    if dtype in RANGE:
        return stream.integers(*RANGE[dtype], shape)
    wide = torch.tensor(stream.standard_normal(shape))
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}.get(dtype)
    return (wide.to(kind).double() if kind else wide).numpy()


def place(pattern, values):
    """{offset in elements: value} of a matrix that lies as the pattern says."""
    assert isinstance(pattern, SharedPattern)
    lies = Layout(pattern.shape, pattern.strides)
    rows, columns = values.shape
    out = {lies((i, j)): values[i, j] for i, j in product(range(rows), range(columns))}
    assert len(out) == rows * columns  # injective
    return np.array([out[n] for n in range(len(out))])  # and without gaps


# Vectors


@pytest.mark.parametrize("path", VECTOR)
def test_a_vector_s_lanes_hold_its_columns(path):
    held = operand(path, "C").arrangements[0]
    assert isinstance(held, FragmentPattern)
    n = EVERY[path].execution_mesh.units
    assert [held.element((lane,), 0, {}) for lane in range(n)] == [(0, j) for j in range(n)]
    k = operand(path, "A").shape[1]
    right = operand(path, "B", b="rmem").arrangements[0]
    seen = {(lane, r): right.element((lane,), r, {}) for lane in range(n) for r in range(k)}
    assert seen == {(lane, r): (r, lane) for lane, r in seen}
    left = operand(path, "A", a="rmem").arrangements[0]
    assert [left.element((5 % n,), r, {}) for r in range(k)] == [(0, r) for r in range(k)]


@pytest.mark.parametrize("path", VECTOR)
def test_a_vector_product_of_packed_memory(path):
    """Lane j adds the k products of the broadcast group and of its own group of B."""
    a, b = operand(path, "A"), operand(path, "B")
    k, n = b.shape
    left, right = drawn(a.dtype, (1, k), 1), drawn(b.dtype, (k, n), 2)
    group, memory = place(a.arrangements[0], left), place(b.arrangements[0], right)
    sums = [sum(group[e] * memory[k * j + e] for e in range(k)) for j in range(n)]
    assert np.allclose(sums, (left @ right)[0], rtol=1e-12)
    assert EVERY[path].shape({"dtype": a.dtype, "a": "gmem", "b": "gmem"}) == (1, n, k)


# Intel AMX


@pytest.mark.parametrize("path", TILED)
def test_a_tile_product_is_the_manual_s(path):
    """Row m of A, dword k: e neighbours; row k of B, dword n: the same e of column n."""
    a, b, c = (operand(path, x) for x in "ABC")
    e = 4 // (DTYPES[a.dtype].bits // 8)
    left, right = drawn(a.dtype, (16, 16 * e), 3), drawn(b.dtype, (16 * e, 16), 4)
    rows_a = place(a.arrangements[0], left).reshape(16, 16, e)
    rows_b = place(b.arrangements[0], right).reshape(16, 16, e)
    sums = np.zeros((16, 16), rows_a.dtype)
    for m, k, n in product(range(16), repeat=3):
        sums[m, n] += (rows_a[m, k] * rows_b[k, n]).sum()
    got = place(c.arrangements[0], left @ right).reshape(16, 16)
    assert np.allclose(sums, got, rtol=1e-12)
    assert {x.arrangements[0].block for x in (a, b, c)} == {1024}


# Apple AMX


def test_fma16_fills_pairs_of_rows():
    """x[i] * y[j] goes to lane i / 2 of row 2 j + i % 2, 16 lanes of f32 to a row."""
    x, y = drawn("f16", 32, 5), drawn("f16", 32, 6)
    z = np.zeros((64, 16))
    for i, j in product(range(32), repeat=2):
        z[2 * j + i % 2, i // 2] += x[i] * y[j]
    held = operand("apple.amx.Fma16", "C").arrangements[0]
    assert np.array_equal(place(held, np.outer(y, x)), z.ravel())
    assert np.array_equal(place(operand("apple.amx.Fma16", "A").arrangements[0], y[:, None]), y)
    assert np.array_equal(place(operand("apple.amx.Fma16", "B").arrangements[0], x[None]), x)


@pytest.mark.parametrize(("path", "acc", "every"), [
    ("apple.amx.Fma32", "f32", 4), ("apple.amx.Fma16", "f16", 2),
])  # fmt: skip
def test_rows_of_sums_stand_apart(path, acc, every):
    """Row j of the outer product is row ``every * j`` of Z, its elements next to each other."""
    held = operand(path, "C", acc=acc).arrangements[0]
    lies = Layout(held.shape, held.strides)
    per = 64 * 8 // DTYPES[acc].bits
    for j, i in product(range(per), repeat=2):
        assert lies((j, i)) == every * j * per + i


# Legality

LANES = Mesh(arrange("lane", (16,), ("lane",)), (("core", 2), ("lane", 16)))
CORES = Mesh(arrange("core", (2,), ("core",)), (("core", 2), ("lane", 16)))
UNIT = Mesh(arrange("amx", (1,), ("unit",)), (("core", 8), ("amx", 1)))
(LANE,) = LANES.axes


def tensor(shape, dtype, layout=None, storage="gmem"):
    lies = None if layout is None else layout_from(layout)
    return TensorType(shape, DTYPES[dtype], lies, storage)


SUMS = tensor((14, 32), "f32", (14, 2, Split(16, LANE)), "rmem")
PANEL = tensor((64, 32), "bf16", Layout(((32, 2), 32), ((64, 1), 2)))
STRIP = tensor((14, 64), "bf16")


def dot(lhs=STRIP, rhs=PANEL, acc=SUMS, mesh=LANES):
    return judge(EVERY["x86.avx512.DpBf16Ps"], mesh, lhs, rhs, acc)


def test_a_dot_product_of_packed_operands():
    found = dot()
    assert isinstance(found, Fit)
    assert found.repeat == (14, 2, 32)
    assert (found.parameters["a"], found.parameters["b"]) == ("gmem", "gmem")


@pytest.mark.parametrize(("change", "clause"), [
    ({"rhs": tensor((64, 32), "bf16")}, "B"),  # rows of B: neighbours along k are 32 apart
    ({"lhs": tensor((14, 64), "bf16", Layout((14, 64), (1, 14)))}, "A"),  # k is not contiguous
    ({"acc": tensor((14, 32), "f32", (14, Split(16, LANE), 2), "rmem")}, "C"),  # lanes outside
    ({"acc": tensor((14, 32), "f32")}, "storage"),
    ({"lhs": tensor((14, 63), "bf16"), "rhs": tensor((63, 32), "bf16")}, "shape"),
    ({"lhs": tensor((14, 64), "f32"), "rhs": tensor((64, 32), "f32")}, "parameter"),
    ({"mesh": Mesh(arrange("lane", (8,), ("lane",)), LANES.sizes)}, "mesh"),
    ({"mesh": CORES}, "mesh"),
])  # fmt: skip
def test_what_a_dot_product_refuses(change, clause):
    found = dot(**change)
    assert isinstance(found, Unmet)
    assert found.clause == clause, found


def test_the_packing_that_is_proposed_fits():
    found = dot(rhs=tensor((64, 32), "bf16"))
    assert isinstance(found, Unmet)
    proposed = eval(found.fix, {"Layout": Layout})
    assert isinstance(dot(rhs=tensor((64, 32), "bf16", proposed)), Fit)


def tile(name, shape, dtype, layout):
    return tensor(shape, dtype, layout, "tmem")


TILE_A = tile("A", (32, 32), "bf16", Layout(((2, 16), 32), ((512, 32), 1)))
TILE_B = tile("B", (32, 32), "bf16", Layout(((16, 2), (2, 16)), ((32, 1), (512, 2))))
TILE_C = tile("C", (32, 32), "f32", Layout(((2, 16), (2, 16)), ((512, 16), (256, 1))))


def test_tiles_of_a_core():
    found = judge(EVERY["x86.amx.TdpBf16Ps"], CORES, TILE_A, TILE_B, TILE_C)
    assert isinstance(found, Fit) and found.repeat == (2, 2, 1)
    rows = replace(TILE_B, layout=layout_from(Layout((32, 32), (32, 1))))  # not by pairs
    found = judge(EVERY["x86.amx.TdpBf16Ps"], CORES, TILE_A, rows, TILE_C)
    assert isinstance(found, Unmet) and found.clause == "B"
    # sums of 32 columns are rows of 128 bytes: no tile
    wide = replace(TILE_C, layout=None)
    found = judge(EVERY["x86.amx.TdpBf16Ps"], CORES, TILE_A, TILE_B, wide)
    assert isinstance(found, Unmet) and found.clause == "C"
    proposed = replace(TILE_C, layout=layout_from(eval(found.fix, {"Layout": Layout})))
    assert isinstance(judge(EVERY["x86.amx.TdpBf16Ps"], CORES, TILE_A, TILE_B, proposed), Fit)


# Rows and tiles from memory


def moved(path, mesh, source, target):
    contract = EVERY[path]
    assert isinstance(contract, CopyInstr)
    return contract.judge(mesh.levels[-1], mesh, Side(source), Side(target))


def test_tile_loads_take_rows_at_one_distance():
    found = moved("x86.amx.TileLoad", CORES, tensor((32, 32), "bf16"), TILE_A)
    assert isinstance(found, Rows)
    # two tiles: rows 32 elements apart from element 0 and from row 16 on
    assert [found.rows[first].memory for first, _ in found.tiles] == [0, 16 * 32]
    assert [stride for _, stride in found.tiles] == [32, 32]
    found = moved("x86.amx.TileLoad", CORES, tensor((32, 32), "bf16"), TILE_B)
    assert isinstance(found, Unmet) and found.clause == "layout"
    packed = tensor((32, 32), "bf16", Layout(((16, 2), 32), ((64, 1), 2)))
    found = moved("x86.amx.TileLoad", CORES, packed, TILE_B)
    assert isinstance(found, Rows)
    assert [found.rows[first].memory for first, _ in found.tiles] == [0, 32]  # 16 columns on
    assert [stride for _, stride in found.tiles] == [64, 64]


X = tensor((8, 32), "f16", None, "amx_x")
Z = tensor((32, 32), "f32", Layout((32, (16, 2)), (32, (1, 16))), "amx_z")


def test_rows_of_x_are_contiguous_memory():
    panel = tensor((8, 32), "f16", Layout((8, 32), (64, 1)))
    found = moved("apple.amx.Ldx", UNIT, panel, X)
    assert isinstance(found, Rows)
    assert [(r.register, r.memory) for r in found.rows] == [(64 * k, 64 * k) for k in range(8)]
    weights = tensor((8, 32), "f16", Layout((8, 32), (1, 512)))  # [N, K] as it comes
    found = moved("apple.amx.Ldx", UNIT, weights, X)
    assert isinstance(found, Unmet)
    assert (found.clause, "contiguous" in found.expected) == ("layout", True)
    assert "511" not in found.got and "512 elements apart" in found.got
    half = tensor((8, 16), "f16", Layout((8, 16), (64, 1)))
    found = moved("apple.amx.Ldx", UNIT, half, replace(X, shape=(8, 16)))
    assert isinstance(found, Unmet)  # a row of X is 32 halves


def test_sums_in_pairs_of_rows_leave_through_stzi():
    row_major = tensor((32, 32), "f32")
    found = moved("apple.amx.Stzi", UNIT, Z, row_major)
    assert isinstance(found, Rows)
    # row 2 j + half holds, with its partner, columns 16 half to 16 half + 15 of row j
    assert [(r.register // 64, r.memory) for r in found.rows] == [
        (2 * j + half, 32 * j + 16 * half) for j in range(32) for half in range(2)
    ]
    found = moved("apple.amx.Stz", UNIT, Z, row_major)
    assert isinstance(found, Unmet) and found.clause == "layout"
    apart = tensor((32, 32), "f32", Layout((32, (16, 2)), (32, (1, 16))))
    assert isinstance(moved("apple.amx.Stz", UNIT, Z, apart), Rows)
