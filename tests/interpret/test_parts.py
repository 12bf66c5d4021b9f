"""Tables and programs: who holds what, index expressions on arrays, several kernels."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernels import LEVELS, Block, copy, kinds, sync

from tilefoundry.interpret import run, run_program
from tilefoundry.interpret.clock import Knowledge, nothing
from tilefoundry.interpret.kernel import kernel_of
from tilefoundry.interpret.place import value
from tilefoundry.ir.dtype import BF16, F32, I32
from tilefoundry.ir.expr import IterVar, evaluate, maximum, minimum
from tilefoundry.ir.mesh import Mesh, arrange, enter
from tilefoundry.tir.program import Barrier, Issue, Launch, Program, Scalar, whole

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from samples import gemm

# facts/semantics: the accumulator of the post, element by element
OWNERS = {
    (0, 0): 128, (0, 1): 128, (8, 0): 128, (1, 0): 132, (0, 2): 129, (0, 8): 128,
    (9, 3): 133, (16, 0): 160, (64, 0): 256, (127, 255): 383,
}  # fmt: skip


def test_the_accumulator_is_held_as_the_isa_says():
    func = gemm(tiles=(1, 1))
    kernel = kernel_of(func)
    held = kernel.places.held(func.buffers[3])
    classes = held.classes(0, np.arange(384))
    assert held.count == 128  # 128 x 256 over 256 threads
    assert (classes[:128] == -1).all()
    for (row, column), thread in OWNERS.items():
        assert np.flatnonzero(classes == held.owner[256 * row + column]).tolist() == [thread]
    for thread in (128, 200, 383):
        mine = held.register[held.owner == classes[thread]]
        assert sorted(mine.tolist()) == list(range(128))


X, Y = IterVar("x", 0, 50), IterVar("y", 0, 50)


@st.composite
def expressions(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([X.expr(), Y.expr(), 3, 7]))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    n = draw(st.integers(1, 9))
    made = [a + b, a - b, a * n, a // n, a % n, minimum(a, b), maximum(a, b)]
    return made[draw(st.integers(0, len(made) - 1))]


@given(expressions())
def test_expressions_on_arrays_are_those_on_integers(x):
    xs, ys = np.arange(51), np.arange(51)[::-1]
    got = np.broadcast_to(value(x, {X: xs, Y: ys}), xs.shape)
    assert got.tolist() == [
        evaluate(x, {X: int(a), Y: int(b)}) for a, b in zip(xs, ys, strict=True)
    ]


def test_lanes_know_what_they_acquired_and_share_it_when_they_meet():
    """Two warps of 4 lanes, by hand: lane 0 of warp 1 hears of lane 2 of warp 0."""
    first, second = Knowledge(0, 4, nothing(8)), Knowledge(4, 4, nothing(8))
    message = first.release(0b0100)  # epoch 1 of thread 2
    second.acquire(0b0001, message)
    assert [clock.seen[2] for mask, clock in second.of(0b1111) if mask & 1] == [1]
    assert [clock.seen[2] for mask, clock in second.of(0b1111) if not mask & 1] == [0]
    assert second.common(0b1111).seen[2] == 0
    second.sync(0b1111)
    assert second.common(0b1111).seen[2] == 1
    # the other lanes of warp 0 did not release anything
    assert second.common(0b1111).seen[[0, 1, 3]].tolist() == [0, 0, 0]
    # a fence counts for what came before it
    first.fence(0b0100)
    assert first.release(0b0100).fenced[2] == 2


def doubled(name):
    b = Block(32)
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    r = b.per_thread("r", 32)
    add = Issue("binary", (whole(r), whole(r)), (whole(r),), {"op": "add"})
    return b.func(copy(x, r), add, copy(r, out))


def test_a_program_passes_values_between_its_kernels():
    kernels = {"double": doubled("double")}
    launches = (Launch("double", ("x",), ("y",)), Launch("double", ("y",), ("z",)))
    program = Program(kernels, "main", ("x",), launches, ("z", "y"))
    given = torch.randn(32)
    found = run_program(program, {"x": given})
    assert found.reports == []
    assert torch.equal(found.outputs[0], 4 * given) and torch.equal(found.outputs[1], 2 * given)


def test_an_input_that_a_kernel_may_not_change_is_copied():
    given = torch.ones(32)
    run(doubled("double"), [given])
    assert torch.equal(given, torch.ones(32))


@pytest.mark.parametrize("waits", [True, False])
def test_a_load_that_nobody_waits_for(waits):
    """Shared memory is another block's once this one has ended."""
    b = Block(32)
    x, out = b.param("x", (32,)), b.param("out", (32,), role="out")
    tile = b.shared("tile", (32,))
    bar = Barrier("full", 1, 1, b.top)
    b.barriers.append(bar)
    one = b.per_thread("one", 32)
    func = b.func(
        b.scope(0, 1, sync("init", barrier=bar, count=1), sync("fence_init"),
                sync("expect", barrier=bar, bytes=128),
                copy(x, tile, "copy_async_tensor", barrier=bar, slot=0)),
        *((sync("warp"), sync("wait", barrier=bar, parity=0)) if waits else ()),
        Issue("fill", (Scalar(1.0, F32),), (whole(one),)),
        copy(one, out),
    )  # fmt: skip
    for policy in ("eager-engines", "lagging-engines"):
        found = run(func, [torch.zeros(32)], policy=policy)
        assert kinds(found) == (set() if waits else {"not-drained"})


def fragments(b, mesh, k, partial, dtype, split):
    """mma.sync operands of a 16 x 8 x k product; two warps split k or each do all of it."""
    warp, member, group = mesh.at("thread")
    wide = 2 if dtype is BF16 else 4
    step = 8 * wide
    outer = (2,) if split else (k // step,)
    axis = (warp,) if split else (None,)
    a = b.held("a", (16, k), ((2, 8), (*outer, 2, 4, wide)),
               (None, group, *axis, None, member, None), mesh, dtype)  # fmt: skip
    w = b.held("w", (k, 8), ((*outer, 2, 4, wide), 8),
               (*axis, None, member, None, group), mesh, dtype)  # fmt: skip
    total = F32 if dtype is BF16 else I32
    terms = ((warp, "sum"),) if partial else ()
    acc = b.held("acc", (16, 8), ((2, 8), (4, 2)), (None, group, member, None), mesh, total, terms)
    return a, w, acc, total


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("dtype", [BF16, "i8"])
def test_warps_that_share_k_hold_partial_sums(dtype, split):
    from tilefoundry.dsl import T
    from tilefoundry.ir.dtype import DTYPES

    dtype = DTYPES[dtype] if isinstance(dtype, str) else dtype
    k = 32 if dtype is BF16 else 64
    b = Block(64)
    x, y = b.param("x", (16, k), dtype), b.param("y", (k, 8), dtype)
    total = F32 if dtype is BF16 else I32
    out = b.param("out", (16, 8), total, "out")
    own = Mesh(arrange("thread", (2, 4, 8), ("warp", "member", "group"), (32, 1, 4)), b.block.sizes)
    mesh = enter(b.mesh, own, LEVELS)
    a, w, acc, _ = fragments(b, mesh, k, split, dtype, split)
    done = b.held("done", (16, 8), ((2, 8), (4, 2)), acc.layout.axes, mesh, total)
    atom = T.cuda.sm80.Mma(dtype="bf16")  # which atom it is decides nothing here
    body = [
        copy(x, a), copy(y, w), Issue("fill", (Scalar(0, total),), (whole(acc),)),
        Issue("tiled_mma", (whole(acc), whole(a), whole(w)), (whole(acc),), {"atom": atom}),
    ]  # fmt: skip
    if split:
        attrs = {"op": "combine", "kind": "sum", "scope": "cta", "over": (mesh.at("thread")[0],)}
        body.append(Issue("reduce", (whole(acc),), (whole(done),), attrs))
    body.append(copy(done if split else acc, out))
    func = b.func(b.arranged((2, 4, 8), ("warp", "member", "group"), lambda m: body,
                             strides=(32, 1, 4)))  # fmt: skip
    p = torch.randint(-100, 100, (16, k)).to(torch.int8)
    q = torch.randint(-100, 100, (k, 8)).to(torch.int8)
    if dtype is BF16:
        p, q = (t.bfloat16() for t in (p, q))
    found = run(func, [p, q])
    assert [str(r) for r in found.reports] == []
    assert torch.equal(found.outputs[0].double(), p.double() @ q.double())
