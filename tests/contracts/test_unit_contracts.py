"""Reductions over mesh axes, the default of each operation, declared synchronisation."""

from __future__ import annotations

import pytest

from tilefoundry.ir.dtype import BF16, DTYPES, F32
from tilefoundry.ir.mesh import Mesh, arrange
from tilefoundry.ir.spec import Split, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.ops import find
from tilefoundry.targets.contract.default import default
from tilefoundry.targets.contract.derived import DerivedInstr
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.targets.contract.registry import contracts
from tilefoundry.targets.contract.render import facts_record, facts_text
from tilefoundry.targets.contract.unit import scope_of, scratch_bytes, workspace_bytes
from tilefoundry.targets.load import load_target
from tilefoundry.tir.forms import DECLARATIONS, SYNCS

H200 = load_target("nvidia.h200_sxm")
GRID = arrange("cta", (4, 8), ("row", "column"))


def threads(*shape, strides=None, offset=0):
    return arrange("thread", shape, tuple(f"t{n}" for n in range(len(shape))), strides, offset)


@pytest.mark.parametrize(
    ("axes", "over", "scope"),
    [
        (threads(4, 8, 4), (), "thread"),
        (threads(4, 8, 4), (2,), "warp"),
        (threads(4, 8, 4), (1, 2), "warp"),
        (threads(4, 8, 4), (0,), "cta"),
        (threads(4, 8, 4), (0, 2), "cta"),
        (threads(1, 8, 4), (0,), "thread"),
        # lanes 4 apart are a bit field of the lane's number, lanes 3 apart are none
        (threads(4, 8, strides=(1, 4)), (0,), "warp"),
        (threads(8, 3), (1,), "cta"),
        # 64 neighbours are two warps
        (threads(2, 64), (1,), "cta"),
        # lanes 16 to 47: coordinate 0 is lane 16
        (threads(32, offset=16), (0,), "cta"),
        (threads(2, 32, offset=128), (1,), "warp"),
    ],
)
def test_the_scope_of_a_reduction_over_threads(axes, over, scope):
    mesh = Mesh((*GRID, *axes))
    assert scope_of(mesh, [axes[n] for n in over]) == scope


def test_the_scope_of_a_reduction_over_ctas():
    mesh = Mesh((*GRID, *threads(32)))
    assert scope_of(mesh, [GRID[1]]) == "grid"
    assert scope_of(mesh, [GRID[1], mesh.axes[2]]) == "grid"
    inside = Mesh((*arrange("cluster", (4,), ("c",)), *arrange("cta", (8,), ("r",)), *threads(32)))
    assert scope_of(inside, [inside.axes[1]]) == "cluster"
    assert scope_of(inside, [inside.axes[0]]) == "grid"


def test_scratch_of_a_reduction():
    """8 rows over the 8 lane groups, summed over 4 warps x 4 lanes: shuffles leave 8 partial
    sums in each warp, 4 warps x 8 x 4 bytes."""
    axes = threads(4, 8, 4)
    mesh = Mesh((*GRID, *axes))
    row = TensorType((8,), F32, layout_from((Split(8, axes[1]),)), "rmem")
    assert scratch_bytes(mesh, [axes[2]], row) == 0
    assert scratch_bytes(mesh, [axes[0], axes[2]], row) == 4 * 8 * 4
    # 16-bit sums are combined in float32
    half = TensorType((8, 2), BF16, layout_from((Split(8, axes[1]), 2)), "rmem")
    assert scratch_bytes(mesh, [axes[0], axes[2]], half) == 4 * 8 * 2 * 4
    assert workspace_bytes(mesh, [axes[0]], row) == 0
    # 32 CTAs of 8 rows each, and a counter for each of the 4 groups of 8 CTAs
    assert workspace_bytes(mesh, [GRID[1], axes[0], axes[2]], row) == 32 * 8 * 4 + 4 * 4


MESH = Mesh((*GRID, *threads(128)))
HELD = TensorType((128,), F32, layout_from((Split(128, MESH.axes[2]),)), "rmem")


@pytest.mark.parametrize(
    ("op", "instr"),
    [
        ("add", "binary"), ("pow", "binary"), ("cmp_lt", "binary"), ("exp", "unary"),
        ("gelu", "unary"), ("cast", "cast"), ("where", "where"), ("clamp", "clamp"), ("fma", "fma"),
        ("relu", "relu"), ("reduce", "reduce"), ("zeros", "fill"), ("full_like", "fill"),
        ("arange", "arange"), ("reshard", "copy"), ("insert_slice", "copy"),
    ],
)  # fmt: skip
def test_the_default_of_an_operation(op, instr):
    found = default(H200, op, MESH, [HELD, HELD], HELD)
    assert not isinstance(found, Unmet), found
    assert found.path == instr


def test_operations_without_a_default():
    found = default(H200, "matmul", MESH, [HELD, HELD], HELD)
    assert isinstance(found, Unmet) and "T.cuda.sm90.Wgmma" in found.fix
    found = default(H200, "add", Mesh(GRID), [HELD, HELD], HELD)
    assert isinstance(found, Unmet) and found.clause == "mesh"
    far = TensorType((128,), F32)
    found = default(H200, "add", MESH, [far, HELD], HELD)
    assert isinstance(found, Unmet) and found.clause == "storage"


def test_every_implemented_operation_exists_and_has_one_instruction():
    seen = {}
    for contract in contracts(H200):
        for op in getattr(contract, "ops", ()):
            assert find(op) is not None, op
            assert op not in seen, (op, seen[op], contract.path)
            seen[op] = contract.path


def test_every_call_that_tir_prints_has_facts():
    declared = {c.path: c for c in contracts(H200) if isinstance(c, DerivedInstr)}
    for kind, form in SYNCS.items():
        assert declared[form.call].kind == kind
    assert {c.kind for c in declared.values()} - {""} == set(SYNCS)
    assert set(DECLARATIONS) <= set(declared)
    for contract in contracts(H200):
        text = facts_text(contract, "nvidia.h200_sxm", "thread")
        assert text.startswith(f"T.{contract.path}\n"), text
        assert facts_record(contract, "nvidia.h200_sxm", "thread")["instruction"]


def test_integer_sums_keep_their_width():
    row = TensorType((8,), DTYPES["i32"], None, "rmem")
    mesh = Mesh((*GRID, *threads(4, 32)))
    assert scratch_bytes(mesh, [mesh.axes[2]], row) == 4 * 32 * 8 * 4
