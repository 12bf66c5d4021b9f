"""Shape, index, convolution and einsum operations: tricky rules and refusals.

Values come from hand arithmetic and ``reference_shapes``; who holds what is counted
element by element.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shapes import REFERENCES

from tilefoundry.diag import Refusal, page
from tilefoundry.ir.access import Indirect
from tilefoundry.ir.dtype import dtype_of
from tilefoundry.ir.expr import Expr, OpenDim, evaluate
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import Digit, ShardLayout, from_digits
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.layout import Layout, Swizzle
from tilefoundry.ops import find
from tilefoundry.ops.base import Call, Op
from tilefoundry.ops.signature import bind

C8 = Axis("cta", "c", 8, 1)
C4 = Axis("cta", "d", 4, 8)
T2 = Axis("thread", "t", 2, 1)
S = OpenDim("S", 0, 512).expr()
B = OpenDim("B", 1, 64).expr()


def tensor(shape: Any, dtype: str = "f32", *digits: Digit, partial: Any = ()) -> TensorType:
    layout = from_digits(shape, digits, partial) if digits or partial else None
    return TensorType(shape, dtype_of(dtype), layout)


def call(name: str, *args: Any, **kwargs: Any) -> tuple[Op, Call]:
    op = find(name)
    assert op is not None
    bound = bind(f"tf.{name}", op.params, args, kwargs, None)
    return op, Call(name, bound.operands, bound.attrs)  # type: ignore[arg-type]


def infer(name: str, *args: Any, **kwargs: Any) -> Any:
    op, made = call(name, *args, **kwargs)
    return op.infer(made)


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """The operation on torch tensors (numbers stay numbers)."""
    names = {v: k for k, v in TORCH.items()}
    types = [
        TensorType(tuple(a.shape), dtype_of(names[a.dtype])) if isinstance(a, torch.Tensor) else a
        for a in args
    ]
    op, made = call(name, *types, **kwargs)
    values = [a for a in args if a is None or isinstance(a, torch.Tensor)]
    return op.evaluate(values, made.attrs, op.infer(made))


TORCH = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "fp8e4m3": torch.float8_e4m3fn,
}


def digits(t: TensorType) -> set[tuple[str, int, Any]]:
    return {(d.axis.name, d.dim, d.inner) for d in t.digits}


def holders(t: TensorType, at: tuple[int, ...]) -> dict[str, int]:
    """The coordinate on each split axis of the units that hold element ``at``."""
    return {
        d.axis.name: at[d.dim] // int(d.inner) % d.axis.extent  # type: ignore[arg-type]
        for d in t.digits
    }


def points(op: Op, made: Call) -> Iterator[tuple[list[Any], list[Any]]]:
    """Elements read and written at each point of the domain, None where out of range."""
    shapes = tuple(r.shape for r in op.results(made))
    relation = op.relation(made, shapes)

    def place(coords: Any, shape: Any, env: Any) -> tuple[int, ...] | None:
        at = tuple(evaluate(c, env) if isinstance(c, Expr) else c for c in coords)
        inside = all(0 <= i < e for i, e in zip(at, shape, strict=True))
        return at if inside else None

    for crd in itertools.product(*(range(int(d.extent)) for d in relation.domain)):  # type: ignore[arg-type]
        env = {d.var: i for d, i in zip(relation.domain, crd, strict=True)}
        reads = [
            place(c, a.shape, env)
            for c, a in zip(relation.operands, made.args, strict=True)
            if a is not None
        ]
        yield reads, [place(c, s, env) for c, s in zip(relation.results, shapes, strict=True)]


# ---- the relation tells what moves where

MOVES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("reshape", [(4, 6)], {"new_shape": (2, 12)}),
    ("reshape", [(4, 6)], {"new_shape": (6, 4)}),
    ("reshape", [(2, 3, 4)], {"new_shape": (1, 6, -1, 2)}),
    ("reshape", [(2, 3, 1, 4)], {"new_shape": (2, 1, 12)}),
    ("reshape", [(1, 1)], {"new_shape": ()}),
    ("reshape", [(3, 1)], {"new_shape": (3,)}),
    ("reshape", [(0, 4)], {"new_shape": (2, 0)}),
    ("transpose", [(2, 3, 4)], {"perm": (2, 0, -2)}),
    ("concat", [(2, 3), (2, 0), (2, 2)], {"axis": -1}),
    ("split", [(7, 2)], {"num_splits": (3, 0, 4), "axis": 0}),
    ("split", [(2, 6)], {"num_splits": 3, "axis": -1}),
    ("repeat_interleave", [(2, 3)], {"repeats": 3, "axis": -1}),
    ("pad", [(2, 3)], {"pads": (1, 0, 2, 1)}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), MOVES)
def test_a_move_follows_its_relation(
    name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]
) -> None:
    op, made = call(name, *(tensor(s) for s in shapes), **attrs)
    start = 1
    args = []
    for shape in shapes:
        args.append(np.arange(start, start + prod(shape), dtype=float).reshape(shape))
        start += prod(shape)
    want = REFERENCES[name](args, attrs)
    want = want if isinstance(want, tuple) else (want,)
    moved = [np.zeros(w.shape) for w in want]
    for reads, writes in points(op, made):
        found = [a[r] for a, r in zip(args, reads, strict=True) if r is not None]
        assert len(found) <= 1
        for out, at in zip(moved, writes, strict=True):
            if at is not None and found:
                out[at] = found[0]
    assert all(np.array_equal(a, b) for a, b in zip(moved, want, strict=True))


# ---- splits that move with their axis

CARRIED: list[tuple[str, list[TensorType], dict[str, Any]]] = [
    ("reshape", [tensor((32, 6), "f32", Digit(C8, 0, 4))], {"new_shape": (8, 24)}),
    ("reshape", [tensor((32, 6), "f32", Digit(C8, 0, 1))], {"new_shape": (4, 8, 6)}),
    ("reshape", [tensor((32, 6), "f32", Digit(C8, 0, 1))], {"new_shape": (192,)}),
    ("reshape", [tensor((192,), "f32", Digit(C8, 0, 6), Digit(T2, 0, 3))], {"new_shape": (32, 6)}),
    ("reshape", [tensor((16, 4), "f32", Digit(C8, 0, 2), Digit(C4, 1, 1))], {"new_shape": (64,)}),
    (
        "concat",
        [tensor((8, 3), "f32", Digit(C8, 0, 1)), tensor((16, 3), "f32", Digit(C8, 0, 1))],
        {},
    ),
    ("split", [tensor((2, 32), "f32", Digit(C4, 1, 2))], {"num_splits": (8, 24), "axis": 1}),
    ("repeat_interleave", [tensor((16, 2), "f32", Digit(C8, 0, 2))], {"repeats": 3, "axis": 0}),
    ("pad", [tensor((16, 3), "f32", Digit(C8, 0, 1))], {"pads": (1, 1, 8, 16)}),
    ("transpose", [tensor((16, 4), "f32", Digit(C8, 0, 2), Digit(C4, 1, 1))], {"perm": (1, 0)}),
    ("stack", [tensor((8, 2), "f32", Digit(C8, 0, 1)), tensor((8, 2))], {"axis": 1}),
]


@pytest.mark.parametrize(("name", "args", "attrs"), CARRIED)
def test_each_unit_moves_its_own_elements(
    name: str, args: list[TensorType], attrs: dict[str, Any]
) -> None:
    op, made = call(name, *args, **attrs)
    inferred = op.infer(made)
    results = inferred.items if isinstance(inferred, TupleType) else (inferred,)
    assert results[0].digits
    seen = 0
    for reads, writes in points(op, made):
        for arg, read in zip(args, reads, strict=True):
            for result, at in zip(results, writes, strict=True):
                if read is None or at is None or not arg.digits:
                    continue
                seen += 1
                assert holders(arg, read) == holders(result, at)
    assert seen


@given(
    factors=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_a_reshape_carries_a_split_or_refuses_it(
    factors: list[int], cuts: list[int], data: st.DataObject
) -> None:
    """Merging and cutting the same factors: accepted splits keep every element's holder,
    refused ones have no layout on the new shape with the same holders."""
    old = tuple(factors)
    ends = sorted({min(c, len(old)) for c in cuts} | {len(old)})
    new = tuple(prod(old[a:b]) for a, b in zip([0, *ends], ends, strict=False) if b > a) or (
        prod(old),
    )
    new = data.draw(st.sampled_from([new, new[::-1], (prod(old),)]))
    choices = [
        (dim, inner, units)
        for dim, e in enumerate(old)
        for units in (2, 3, 4)
        for inner in (1, 2)
        if e % (units * inner) == 0
    ]
    if not choices:
        return
    dim, inner, units = data.draw(st.sampled_from(choices))
    axis = Axis("cta", "c", units, 1)
    x = tensor(old, "f32", Digit(axis, dim, inner))
    held = [holders(x, at)["c"] for at in np.ndindex(*old)]
    try:
        y = infer("reshape", x, new_shape=new)
    except Refusal as refusal:
        assert refusal.diags[0].code == "reshape-splits"
        for d, e in enumerate(new):
            for i in range(1, e + 1):
                if e % (i * units) == 0:
                    other = [at[d] // i % units for at in np.ndindex(*new)]
                    assert other != held
        return
    assert [holders(y, at)["c"] for at in np.ndindex(*new)] == held


def test_a_reshape_that_cuts_a_unit_names_the_reshard() -> None:
    x = tensor((32, 6), "f32", Digit(C8, 0, 4))
    with pytest.raises(Refusal) as caught:
        infer("reshape", x, new_shape=(4, 48))
    assert caught.value.diags[0].code == "reshape-splits"
    assert "tf.reshard(x, (32, 6), ...)" in caught.value.diags[0].fix


def test_a_reshape_to_the_same_shape_keeps_the_layout() -> None:
    layout = ShardLayout((4, 6), (1, 4), (None, None))
    x = TensorType((4, 6), dtype_of("f32"), layout, "smem")
    assert infer("reshape", x, new_shape=(4, -1)) is x


def test_joins_and_cuts_on_a_split_axis_need_whole_periods() -> None:
    """Blocks of 2 rows per unit: 8 rows joined to 8 would give unit 0 rows 0, 1, 8, 9."""
    half = tensor((16, 3), "f32", Digit(C8, 0, 2))
    joined = infer("concat", half, half)
    assert digits(joined) == {("c", 0, 2)}
    assert joined.local_shape == (4, 3)
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("concat", half, tensor((8, 3)))
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("concat", half, tensor((8, 3), "f32", Digit(C8, 0, 1)))
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("split", half, 2, 0)
    parts = infer("split", tensor((32,), "f32", Digit(C8, 0, 1)), 2, 0)
    assert [p.local_shape for p in parts.items] == [(2,), (2,)]


def test_split_of_another_axis_keeps_the_split() -> None:
    parts = infer("split", tensor((16, 6), "f32", Digit(C8, 0, 2)), (1, 5), 1)
    assert [p.local_shape for p in parts.items] == [(2, 1), (2, 5)]


def test_a_split_index_splits_the_rows_it_selects() -> None:
    table, index = tensor((100, 64)), tensor((16,), "i64", Digit(C8, 0, 2))
    assert digits(infer("index_select", table, index, 0)) == {("c", 0, 2)}
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("index_select", tensor((16, 64), "f32", Digit(C8, 0, 2)), tensor((4,), "i64"), 0)


def test_updates_change_each_unit_s_own_part() -> None:
    """dst split along dim: every unit has index and src whole, and writes what it holds."""
    dst, index, src = tensor((16, 4), "f32", Digit(C8, 0, 2)), tensor((3,), "i64"), tensor((3, 4))
    for name in ("index_add", "index_copy"):
        assert digits(infer(name, dst, index, src, 0)) == {("c", 0, 2)}
        with pytest.raises(Refusal, match="shard-needs-whole"):
            infer(name, dst, tensor((8,), "i64", Digit(C4, 0, 2)), tensor((8, 4)), 0)
    flat = tensor((3, 4), "i64")
    assert digits(infer("scatter_add", dst, flat, src, 0)) == {("c", 0, 2)}


def test_a_cache_split_over_heads_takes_a_split_or_whole_token() -> None:
    cache = tensor((1, 64, 8, 16), "bf16", Digit(C8, 2, 1))
    pos = tensor((), "i64")
    for new in (tensor((1, 4, 8, 16), "bf16"), tensor((1, 4, 8, 16), "bf16", Digit(C8, 2, 1))):
        out = infer("cache_update", cache, new, pos, 4)
        assert out == cache
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("cache_update", cache, tensor((1, 8, 8, 16), "bf16", Digit(C4, 1, 2)), pos, 8)


def test_updates_stay_where_the_destination_lies() -> None:
    dst = replace(tensor((16, 4)), storage="gmem")
    near = replace(tensor((3, 4)), storage="rmem")
    assert infer("index_add", dst, tensor((3,), "i64"), near, 0).storage == "gmem"


# ---- partial values

SUM = ((C8, "sum"),)


def test_moving_a_partial_sum_keeps_it() -> None:
    x = tensor((4, 6), partial=SUM)
    for name, attrs in (
        ("reshape", {"new_shape": (24,)}),
        ("transpose", {"perm": (1, 0)}),
        ("repeat_interleave", {"repeats": 2, "axis": 0}),
        ("pad", {"pads": (1, 1)}),
    ):
        assert infer(name, x, **attrs).partial == SUM
    assert [p.partial for p in infer("split", x, 2, 1).items] == [SUM, SUM]
    assert infer("concat", x, x).partial == SUM
    assert infer("index_select", x, tensor((2,), "i64"), 0).partial == SUM


def test_filling_a_partial_sum_would_count_the_fill_in_every_unit() -> None:
    x = tensor((4, 6), partial=SUM)
    with pytest.raises(Refusal, match="partial-consumed"):
        infer("pad", x, (1, 1), 2.0)
    with pytest.raises(Refusal, match="partial-consumed"):
        infer("index_select", x, tensor((2,), "i64"), 0, 1.0)
    largest = tensor((4, 6), partial=((C8, "max"),))
    assert infer("pad", largest, (1, 1), -5.0).partial == ((C8, "max"),)
    with pytest.raises(Refusal, match="partial-consumed"):
        infer("concat", x, tensor((4, 6)))
    with pytest.raises(Refusal, match="partial-consumed"):
        infer("gather", tensor((4, 6)), tensor((4, 6), "i64", partial=SUM), 0)


def test_an_einsum_over_a_split_letter_gives_a_partial_sum() -> None:
    a = tensor((4, 64), "bf16", Digit(C8, 1, 8))
    b = tensor((64, 5), "bf16", Digit(C8, 0, 8))
    out = infer("einsum", "ik,kj->ij", a, b)
    assert out.partial == SUM and not out.digits
    assert infer("einsum", "ik,kj->ij", a, tensor((64, 5), "bf16")).partial == SUM
    assert digits(infer("einsum", "ik,kj->ikj", a, b)) == {("c", 1, 8)}
    held = tensor((4, 6), partial=SUM)
    assert infer("einsum", "ij,jk->ik", held, tensor((6, 2))).partial == SUM
    with pytest.raises(Refusal, match="partial-consumed"):
        infer("einsum", "ij,jk->ik", held, tensor((6, 2), partial=SUM))


def test_a_convolution_over_split_channels_is_partial_without_a_bias() -> None:
    x, w = tensor((1, 16, 9), "f32", Digit(C8, 1, 2)), tensor((4, 16, 3), "f32", Digit(C8, 1, 2))
    assert infer("conv1d", x, w).partial == SUM
    with pytest.raises(Refusal, match="shard-needs-whole"):
        infer("conv1d", x, w, tensor((4,)))
    depthwise = tensor((16, 1, 3), "f32", Digit(C8, 0, 2))
    out = infer("conv1d", x, depthwise, None, 1, 2, 1, 16)
    assert digits(out) == {("c", 1, 2)} and out.shape == (1, 16, 11)


# ---- open extents


def test_open_extents_stay_open() -> None:
    x = tensor((B, S, 4096), "bf16", Digit(C8, 2, 512))
    heads = infer("reshape", x, new_shape=(B, S, 32, 128))
    assert heads.shape == (B, S, 32, 128) and digits(heads) == {("c", 2, 4)}
    assert infer("reshape", heads, new_shape=(B, S, -1)).shape == (B, S, 4096)
    assert infer("reshape", tensor((S, 4, 8)), new_shape=(-1, 8)).shape == (4 * S, 8)
    assert infer("reshape", tensor((B * 4, S)), new_shape=(B, 4, S)).shape == (B, 4, S)
    assert infer("transpose", heads, (0, 2, 1, 3)).shape == (B, 32, S, 128)
    assert infer("concat", tensor((S, 4)), tensor((3, 4)), tensor((S, 4))).shape == (2 * S + 3, 4)
    assert [p.shape for p in infer("split", tensor((2 * S, 4)), 2, 0).items] == [(S, 4), (S, 4)]
    assert [p.shape for p in infer("split", tensor((S + 3,)), (S, 3), 0).items] == [(S,), (3,)]
    assert infer("repeat_interleave", tensor((B, 8, S)), 4, 1).shape == (B, 32, S)
    assert infer("pad", tensor((B, S)), (3, 1)).shape == (B, S + 4)
    assert infer("index_select", tensor((1000, 64)), tensor((B, S), "i64"), 0).shape == (B, S, 64)
    assert infer("conv1d", tensor((B, 4, S)), tensor((4, 1, 4)), None, 1, 3, 1, 4).shape == (
        (B, 4, S + 3)
    )
    assert infer("einsum", "bqd,bkd->bqk", tensor((B, S, 8)), tensor((B, 7, 8))).shape == (B, S, 7)
    cache = tensor((B, 4096, 8, 128), "bf16")
    new = tensor((B, S, 8, 128), "bf16")
    assert infer("cache_update", cache, new, tensor((), "i64"), S).shape == cache.shape
    assert infer("cache_update", cache, new, tensor((B,), "i64"), S).shape == cache.shape


@pytest.mark.parametrize(
    ("old", "new"),
    [((S, 6), (6, S)), ((S, 4, 8), (S, 32)), ((4 * B, 8), (B, 32)), ((B, S, 2), (B * S, 2))],
)
def test_an_open_reshape_moves_as_when_bound(old: Any, new: Any) -> None:
    env = {OpenDim("S", 0, 512): 3, OpenDim("B", 1, 64): 2}
    op, made = call("reshape", tensor(old), new_shape=new)
    relation = op.relation(made, (new,))
    shape = tuple(evaluate(e, env) for e in new)
    bound = [evaluate(e, env) for e in old]
    for n, at in enumerate(np.ndindex(*shape)):
        here = env | {d.var: i for d, i in zip(relation.domain, at, strict=True)}
        read = [evaluate(c, here) for c in relation.operands[0]]  # type: ignore[arg-type]
        assert read == list(np.unravel_index(n, bound))


# ---- values by hand


def test_index_select_fills_what_is_outside() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.bfloat16)
    index = torch.tensor([2, -1, 3, 0], dtype=torch.int32)
    out = run("index_select", x, index, dim=0, fill_value=9.0)
    assert out.tolist() == [[5, 6], [9, 9], [9, 9], [1, 2]]
    with pytest.raises(Refusal, match=r"index-out-of-range.* reads index -1 of axis 0"):
        run("index_select", x, index, dim=0)
    down = run("index_select", x, torch.tensor([[1, 7]]), dim=-1, fill_value=0.5)
    assert down.shape == (3, 1, 2) and down[:, 0].tolist() == [[2, 0.5], [4, 0.5], [6, 0.5]]


def test_sums_of_16_bit_values_round_once() -> None:
    """256 + 1 + 1 in bf16: rounding at each step would stay at 256."""
    dst = torch.tensor([256.0], dtype=torch.bfloat16)
    ones = torch.ones(2, dtype=torch.bfloat16)
    index = torch.zeros(2, dtype=torch.int64)
    assert run("index_add", dst, index, ones, dim=0).item() == 258.0
    assert run("scatter_add", dst, index, ones, axis=0).item() == 258.0


def test_index_copy_refuses_two_values_for_one_place() -> None:
    dst, index = torch.zeros(4), torch.tensor([1, 3, 1])
    same = run("index_copy", dst, index, torch.tensor([5.0, 6.0, 5.0]), dim=0)
    assert same.tolist() == [0, 5, 0, 6]
    with pytest.raises(Refusal, match=r"index-copy-repeats.*index 1"):
        run("index_copy", dst, index, torch.tensor([5.0, 6.0, 7.0]), dim=0)


@pytest.mark.parametrize("name", ["index_add", "index_copy", "scatter_add", "gather"])
def test_indices_out_of_range_are_refused(name: str) -> None:
    x, index = torch.zeros(4), torch.tensor([0, 4])
    args = (x, index) if name == "gather" else (x, index, torch.ones(2))
    with pytest.raises(Refusal, match="index-out-of-range") as caught:
        run(name, *args, **{"dim" if name.startswith("index") else "axis": 0})
    assert caught.value.diags[0].expected == "an index of 0 to 3"


def test_cache_update_writes_at_one_position_or_one_per_row() -> None:
    cache = torch.zeros(2, 5, 1, 1, dtype=torch.float16)
    new = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float16).reshape(2, 2, 1, 1)
    one = run("cache_update", cache, new, torch.tensor(3), s=2).reshape(2, 5)
    assert one.tolist() == [[0, 0, 0, 1, 2], [0, 0, 0, 3, 4]]
    rows = run("cache_update", cache, new, torch.tensor([0, 2]), s=2).reshape(2, 5)
    assert rows.tolist() == [[1, 2, 0, 0, 0], [0, 0, 3, 4, 0]]
    heads_first = run(
        "cache_update", cache.transpose(1, 2), new.transpose(1, 2), torch.tensor([1]), s=2
    )
    assert heads_first.reshape(2, 5).tolist() == [[0, 1, 2, 0, 0], [0, 3, 4, 0, 0]]
    full = run("cache_update", cache[:, :2], new, torch.tensor([0, 0]), s=2)
    assert torch.equal(full, new)
    assert not cache.any()
    with pytest.raises(Refusal, match=r"cache-update-range.*2 tokens from position 4") as caught:
        run("cache_update", cache, new, torch.tensor(4), s=2)
    assert caught.value.diags[0].expected == "a position of 0 to 3"


def test_moves_keep_every_bit_of_eight_bit_floats() -> None:
    """All 256 patterns, NaNs and both zeros among them, through every move."""
    bits = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    x = bits.view(torch.float8_e4m3fn)
    swap = torch.tensor(list(range(15, -1, -1)))
    moves = {
        "transpose": (run("transpose", x, perm=(1, 0)), bits.T),
        "concat": (run("concat", x, x, axis=1), torch.cat([bits, bits], 1)),
        "stack": (run("stack", x, x, axis=0), torch.stack([bits, bits])),
        "select": (run("index_select", x, swap, dim=0), bits.flip(0)),
        "copy": (run("index_copy", x, swap, x, dim=0), bits.flip(0)),
        "gather": (run("gather", x, swap.expand(16, 16), axis=1), bits.flip(1)),
        "pad": (run("pad", x, pads=(0, 1), value=0.0)[:, :16], bits),
        "repeat": (run("repeat_interleave", x, repeats=1, axis=0), bits),
        "split": (run("split", x, num_splits=2, axis=0)[1], bits[8:]),
    }
    for got, want in moves.values():
        assert torch.equal(got.contiguous().view(torch.uint8), want)


def test_einsum_without_an_arrow_takes_single_letters_in_order() -> None:
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]])
    assert run("einsum", "cb,ba", a, b).tolist() == [[11.0]]
    assert infer("einsum", "cb,ba", tensor((5, 2)), tensor((2, 3))).shape == (3, 5)


def test_einsum_rounds_once() -> None:
    """Sixteen halves and 2048: float16 sums would stay at 2048, float32 gives 2056."""
    row = torch.tensor([2048.0] + [0.5] * 16, dtype=torch.float16)
    assert run("einsum", "i,i->", row, torch.ones_like(row)).item() == 2056.0


# ---- cost

COSTS: list[tuple[str, list[Any], dict[str, Any], Mapping[tuple[str, str], int]]] = [
    ("einsum", ["ik,kj->ij", tensor((3, 4)), tensor((4, 5))], {}, {("matrix", "f32"): 120}),
    # i and k are summed alone first: 12 additions; then 4 products of the outer product
    ("einsum", ["ik,j->j", tensor((3, 4)), tensor((4,))], {}, {("float", "f32"): 16}),
    ("conv1d", [tensor((2, 8, 10)), tensor((4, 2, 3))], {"groups": 4}, {("matrix", "f32"): 768}),
    ("conv1d", [tensor((1, 1, 4)), tensor((1, 1, 1)), tensor((1,))], {},
     {("matrix", "f32"): 8, ("float", "f32"): 4}),
    ("index_add", [tensor((9, 4)), tensor((3,), "i64"), tensor((3, 4))], {"dim": 0},
     {("float", "f32"): 12}),
    ("concat", [tensor((2, 3), "f16"), tensor((1, 3))], {}, {("float", "f32"): 6}),
    ("reshape", [tensor((4, 6))], {"new_shape": (24,)}, {}),
    ("cache_update", [tensor((2, 9)), tensor((2, 1)), tensor((), "i64"), 1], {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "attrs", "want"), COSTS)
def test_work(name: str, args: list[Any], attrs: dict[str, Any], want: Any) -> None:
    op, made = call(name, *args, **attrs)
    assert dict(op.work(made, tuple(r.shape for r in op.results(made))).counts) == want


# ---- refusals

I3 = tensor((3,), "i64")
F34 = tensor((3, 4))
REFUSED: list[tuple[str, str, list[Any], dict[str, Any]]] = [
    ("reshape-size", "reshape", [F34, (5, 2)], {}),
    ("reshape-size", "reshape", [F34, (-1, -1)], {}),
    ("reshape-size", "reshape", [F34, (-1, 5)], {}),
    ("reshape-size", "reshape", [F34, (-3, -4)], {}),
    ("reshape-size", "reshape", [tensor((0, 4)), (-1, 0)], {}),
    ("reshape-size", "reshape", [tensor((S, 4)), (-1, 8)], {}),
    ("reshape-size", "reshape", [tensor((S, 4)), (B, 4)], {}),
    ("op-attribute", "reshape", [F34, (2.0, 6)], {}),
    ("transpose-perm", "transpose", [F34, (0, 0)], {}),
    ("transpose-perm", "transpose", [F34, (1,)], {}),
    ("op-axis", "transpose", [F34, (0, 2)], {}),
    ("op-arguments", "concat", [], {}),
    ("op-axis", "concat", [F34, F34], {"axis": 2}),
    ("op-axis", "concat", [tensor(())], {"axis": 0}),
    ("join-shapes", "concat", [F34, tensor((3, 5))], {"axis": 0}),
    ("join-shapes", "concat", [F34, tensor((3, 4, 1))], {"axis": 0}),
    ("op-promotion", "concat", [F34, tensor((3, 4), "fp8e4m3")], {}),
    ("join-shapes", "stack", [F34, tensor((4, 4))], {}),
    ("op-axis", "stack", [F34, F34], {"axis": 3}),
    ("split-sizes", "split", [F34, 3, 1], {}),
    ("split-sizes", "split", [F34, 0, 1], {}),
    ("split-sizes", "split", [F34, (1, 2), 1], {}),
    ("split-sizes", "split", [F34, (5, -1), 1], {}),
    ("split-sizes", "split", [tensor((S,)), 2, 0], {}),
    ("op-attribute", "repeat_interleave", [F34, -1, 0], {}),
    ("op-arguments", "repeat_interleave", [F34, 2], {}),
    ("op-dtype", "index_select", [F34, tensor((3,)), 0], {}),
    ("index-shapes", "index_select", [F34, tensor((), "i64"), 0], {}),
    ("op-attribute", "index_select", [tensor((3,), "u8"), I3, 0, 300], {}),
    ("op-attribute", "index_select", [tensor((3,), "i32"), I3, 0, 0.5], {}),
    ("index-shapes", "index_add", [F34, tensor((3, 1), "i64"), F34, 0], {}),
    ("index-shapes", "index_add", [F34, I3, tensor((2, 4)), 0], {}),
    ("op-promotion", "index_add", [F34, I3, tensor((3, 4), "f16"), 0], {}),
    ("op-dtype", "index_add", [tensor((3,), "fp8e4m3"), I3, tensor((3,), "fp8e4m3"), 0], {}),
    ("index-shapes", "index_copy", [F34, I3, tensor((3, 5)), 0], {}),
    ("index-shapes", "gather", [F34, I3, 0], {}),
    ("index-shapes", "gather", [F34, tensor((4, 4), "i64"), 1], {}),
    ("index-shapes", "scatter_add", [F34, tensor((3, 4), "i64"), tensor((3, 3)), 1], {}),
    ("op-dtype", "scatter_add", [tensor((3,), "bool"), I3, tensor((3,), "bool"), 0], {}),
    (
        "cache-update-shapes",
        "cache_update",
        [tensor((2, 9, 4)), tensor((2, 3, 4)), tensor((), "i64"), 2],
        {},
    ),
    (
        "cache-update-shapes",
        "cache_update",
        [tensor((2, 9, 4)), tensor((1, 3, 4)), tensor((), "i64"), 3],
        {},
    ),
    (
        "cache-update-shapes",
        "cache_update",
        [tensor((2, 9)), tensor((2, 9, 4)), tensor((), "i64"), 9],
        {},
    ),
    ("index-shapes", "cache_update", [tensor((2, 9, 4)), tensor((2, 3, 4)), I3, 3], {}),
    ("op-dtype", "cache_update", [tensor((2, 9, 4)), tensor((2, 3, 4)), tensor(()), 3], {}),
    (
        "op-promotion",
        "cache_update",
        [tensor((2, 9)), tensor((2, 3), "f16"), tensor((), "i64"), 3],
        {},
    ),
    ("pad-amounts", "pad", [F34, (1, 1, 1)], {}),
    ("pad-amounts", "pad", [F34, (1, -1)], {}),
    ("pad-amounts", "pad", [tensor((3,)), (1, 1, 1, 1)], {}),
    ("conv-shapes", "conv1d", [tensor((2, 4, 9)), tensor((4, 3, 3))], {}),
    ("conv-shapes", "conv1d", [tensor((4, 9)), tensor((4, 4, 3))], {}),
    ("conv-shapes", "conv1d", [tensor((2, 4, 9)), tensor((3, 2, 3))], {"groups": 2}),
    ("conv-shapes", "conv1d", [tensor((2, 4, 9)), tensor((4, 4, 3)), tensor((3,))], {}),
    ("conv-window", "conv1d", [tensor((2, 4, 2)), tensor((4, 4, 3))], {}),
    ("conv-window", "conv1d", [tensor((2, 4, 9)), tensor((4, 4, 0))], {}),
    ("op-attribute", "conv1d", [tensor((2, 4, 9)), tensor((4, 4, 3))], {"stride": 0}),
    ("op-attribute", "conv1d", [tensor((2, 4, 9)), tensor((4, 4, 3))], {"groups": 0}),
    (
        "op-attribute",
        "conv2d",
        [tensor((2, 4, 9, 9)), tensor((4, 4, 3, 3))],
        {"padding": (1, 1, 1)},
    ),
    ("op-dtype", "conv1d", [tensor((2, 4, 9), "i32"), tensor((4, 4, 3), "i32")], {}),
    ("op-promotion", "conv1d", [tensor((2, 4, 9)), tensor((4, 4, 3), "bf16")], {}),
    ("einsum-equation", "einsum", ["...ij->...ji", F34], {}),
    ("einsum-equation", "einsum", ["ij,jk", F34], {}),
    ("einsum-equation", "einsum", ["i", F34], {}),
    ("einsum-equation", "einsum", ["ij->ii", F34], {}),
    ("einsum-equation", "einsum", ["ij->k", F34], {}),
    ("einsum-extents", "einsum", ["ij,jk->ik", F34, F34], {}),
    ("einsum-extents", "einsum", ["ii->", F34], {}),
    ("op-arguments", "einsum", ["->"], {}),
    ("op-promotion", "einsum", ["ij,ij", F34, tensor((3, 4), "f16")], {}),
    ("op-dtype", "einsum", ["ij", tensor((3, 4), "bool")], {}),
    ("op-dtype", "einsum", ["ij", tensor((3, 4), "fp8e4m3")], {}),
    ("op-dtype", "einsum", ["ij", F34], {"out_dtype": "i32"}),
]


@pytest.mark.parametrize(("code", "name", "args", "attrs"), REFUSED)
def test_refused(code: str, name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        infer(name, *args, **attrs)
    (diag,) = caught.value.diags
    assert diag.code == code
    known = page(code)
    for words in (known.says, known.expected, known.found, known.fix):
        words.format_map(dict(diag.fields))  # every field of the page's words is given


def test_the_index_is_data_in_the_relation() -> None:
    op, made = call("index_select", F34, I3, 0)
    reads = op.relation(made, ((3, 4),)).operands
    assert reads[0][0] == Indirect(1) and len(reads[1]) == 1


@pytest.mark.parametrize(
    "layout",
    [
        Layout(((2, 8, 8), (4, 16)), ((4096, 512, 64), (16, 1))) | Swizzle(3, 4, 3),
        Layout((128, 64)) | Swizzle(3, 4, 3),
        Layout((128, 64), (66, 1)) + 8,
    ],
)
def test_a_transposed_shared_tile_is_the_same_memory(layout: Any) -> None:
    x = TensorType((128, 64), dtype_of("bf16"), layout_from(layout), "smem")
    turned = infer("transpose", x, (1, 0))
    assert (turned.shape, turned.storage) == ((64, 128), "smem")
    before, after = x.layout.layout(), turned.layout.layout()
    for i, j in itertools.product(range(128), range(64)):
        assert after.address((j, i), 2) == layout.address((i, j), 2) == before.address((i, j), 2)
    back = infer("transpose", turned, (1, 0)).layout.layout()
    assert back.address((5, 9), 2) == layout.address((5, 9), 2)
