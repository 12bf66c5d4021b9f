"""Issues of kernels against their contracts, with the buffers as they lie."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs.sizes import path
from tilefoundry.diag import Refusal
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.lang.load import load_source
from tilefoundry.layout import Swizzle
from tilefoundry.lower import lower
from tilefoundry.targets.contract.legality import Unmet
from tilefoundry.tir.plans import plan_of, unmet
from tilefoundry.tir.program import Issue, View, With, walk
from tilefoundry.verify.accept import accept


@pytest.fixture(scope="module")
def kernel():
    loaded = load_source(path("gemm_optimal"), None, {})
    (made,) = lower(loaded.module).kernels.values()
    return made


def with_buffer(func, name, **changes):
    """The kernel with one buffer's declaration changed, in every view of it."""
    old = next(b for b in (*func.params, *func.buffers) if b.name == name)
    new = replace(old, **changes)

    def view(x):
        return replace(x, buffer=new) if isinstance(x, View) and x.buffer is old else x

    def body(stmts):
        out = []
        for s in stmts:
            if isinstance(s, Issue):
                s = replace(s, reads=tuple(map(view, s.reads)), writes=tuple(map(view, s.writes)))
            elif hasattr(s, "body"):
                s = replace(s, body=body(s.body))
            out.append(s)
        return tuple(out)

    swap = {"params": func.params, "buffers": func.buffers}
    held = {k: tuple(new if b is old else b for b in v) for k, v in swap.items()}
    return replace(func, body=body(func.body), **held)


def test_the_posts_kernel_meets_every_contract(kernel):
    assert list(unmet(kernel)) == []
    plans = {
        (s.instr, s.writes[0].buffer.name): plan_of(s, mesh)
        for s, mesh in walk(kernel.body)
        if isinstance(s, Issue)
    }
    assert plans["copy_async_tensor", "lhs_ring"].box == (64, 128)
    assert plans["copy_async_tensor", "rhs_ring"].box == (64, 16, 4, 4)
    assert plans["copy_async_tensor", "out"].box == (64, 128, 4)
    assert plans["copy", "staged_dst"].write == 4
    assert plans["tiled_mma", "acc"].repeat == (2, 1, 4)


ROWS = ShardLayout((128, 64), (64, 1), (None, None), (), None)


@pytest.mark.parametrize(
    ("name", "changes", "clauses"),
    [
        # rows of 17416 elements + 1: 34834 bytes, no multiple of 16
        ("out", {"shape": (8192, 17409)}, {("copy_async_tensor", "stride")}),
        ("a", {"layout": ShardLayout((8192, 5120), (1, 8192), (None, None))},
         {("copy_async_tensor", "layout")}),
        # wrong swizzle and none at all: TMA could, wgmma's descriptor has its own spans
        ("lhs_ring", {"layout": replace(ROWS, swizzle=Swizzle(3, 3, 3))},
         {("copy_async_tensor", "swizzle"), ("tiled_mma", "A")}),
        ("lhs_ring", {"layout": ROWS}, {("tiled_mma", "A")}),
    ],
)  # fmt: skip
def test_another_buffer_is_refused(kernel, name, changes, clauses):
    wrong = with_buffer(kernel, name, **changes)
    found = list(unmet(wrong))
    assert {(issue.instr, clause.clause) for issue, clause in found} == clauses
    with pytest.raises(Refusal) as refused:
        accept(wrong)
    assert "contract-unmet" in [d.code for d in refused.value.diags]


def test_other_participants_are_refused(kernel):
    """The product issued by one warpgroup of the two that hold its accumulator."""
    stmt, mesh = next(
        (s, m) for s, m in walk(kernel.body) if isinstance(s, Issue) and s.instr == "tiled_mma"
    )
    scope = next(s for s, _ in walk(kernel.body) if isinstance(s, With) and stmt in s.body)
    assert scope.mesh == mesh
    thread = [a for a in mesh.axes if a.level == "thread"]
    less = replace(mesh, axes=tuple(a for a in mesh.axes if a is not thread[0]))
    found = plan_of(stmt, less)
    assert isinstance(found, Unmet) and found.clause == "C"
