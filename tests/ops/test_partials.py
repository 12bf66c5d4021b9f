"""Values that are partial: what an operation makes of terms must combine to what it makes
of the whole, wherever its rule lets them pass."""

from __future__ import annotations

from itertools import product as cartesian
from typing import Any

import numpy as np
import pytest
import torch
from op_cases import UNIT, Case, as_numpy, cases, types_of

from tilefoundry.diag import Refusal
from tilefoundry.ir.mesh import Axis, arrange
from tilefoundry.ir.shard import from_digits
from tilefoundry.ir.types import TensorType

(AXIS,) = arrange("cta", (2,), ("u",))
PLACING = {"reshard", "local"}
"""They complete a partial value, or name the unit's own term."""
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
MOVES = ("concat", "stack", "split", "transpose", "reduce")
PASSES = {
    "sum": (*MOVES, "add", "sub", "mul", "div", "neg", "cast", "cumsum", "matmul", "where"),
    "max": MOVES,
}


def _partial(type: TensorType, kind: str, axis: Axis = AXIS) -> TensorType:
    return type.with_(layout=from_digits(type.shape, (), ((axis, kind),)), storage="rmem")


def _terms(x: Any, kind: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """Two terms that combine to ``x`` exactly."""
    noise = torch.from_numpy(rng.integers(-4, 5, size=tuple(x.shape)))
    if kind == "sum":
        return noise.to(x.dtype), (x.to(torch.float64) - noise).to(x.dtype)
    other = (
        x.to(torch.float64) - noise.abs() if kind == "max" else x.to(torch.float64) + noise.abs()
    )
    first = torch.from_numpy(rng.integers(2, size=tuple(x.shape))).bool()
    other = other.to(x.dtype)
    return torch.where(first, x, other), torch.where(first, other, x)


def _integers(x: Any, rng: np.random.Generator) -> Any:
    """Small integers of the same dtype, so that sums of terms are exact."""
    if x is None or x.dtype is torch.bool:
        return x
    return torch.from_numpy(rng.integers(1, 5, size=tuple(x.shape))).to(x.dtype)


def passed(case: Case, kind: str) -> int:
    """How many ways of being partial the rule accepts; each is checked."""
    spec = case.example.values
    kinds = (spec,) * len(case.types) if isinstance(spec, str) else spec
    rng = np.random.default_rng(5)
    args = [
        a if k == "index" else _integers(a, rng) for a, k in zip(case.draw(4), kinds, strict=True)
    ]
    count = 0
    for held in cartesian((False, True), repeat=len(args)):
        movable = all(
            not h or (t is not None and t.dtype.kind != "bool" and k != "index")
            for h, t, k in zip(held, case.types, kinds, strict=True)
        )
        if not any(held) or not movable:
            continue
        types = [
            _partial(t, kind) if h and t is not None else t
            for h, t in zip(held, case.types, strict=True)
        ]
        try:
            made = types_of(case.op.infer(case.call(types)))
        except Refusal:
            continue
        terms = [_terms(a, kind, rng) if h else (a, a) for h, a in zip(held, args, strict=True)]
        whole = case.run(args)
        first, second = (case.run([t[n] for t in terms]) for n in (0, 1))
        for want, a, b, type in zip(whole, first, second, made, strict=True):
            a, b, want = as_numpy(a), as_numpy(b), as_numpy(want)
            size = max((float(np.abs(v).max(initial=0)) for v in (a, b, want)), default=0.0)
            # a term and its partner are rounded, and what they are compared with
            limit = 4 * UNIT.get(type.dtype.name, 0) * size
            if type.partial:
                a = b = COMBINE[type.partial[0][1]](a, b)
            np.testing.assert_allclose(a.astype(float), want.astype(float), rtol=0, atol=limit)
            np.testing.assert_allclose(b.astype(float), want.astype(float), rtol=0, atol=limit)
        count += 1
    return count


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize(
    "case",
    [c for c in cases() if c.example.inputs and c.op.name not in PLACING],
    ids=lambda c: c.id,
)
def test_terms_combine_to_the_whole(case: Case, kind: str):
    passed(case, kind)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_linear_operations_pass_terms(kind: str):
    accepted = {c.op.name for c in cases() if c.op.name in PASSES[kind] and passed(c, kind)}
    assert sorted(set(PASSES[kind]) - accepted) == []


@pytest.mark.parametrize("name", ["exp", "square", "softmax", "rms_norm", "minimum", "round"])
def test_others_refuse_terms(name: str):
    case = next(c for c in cases() if c.op.name == name)
    types = [_partial(case.types[0], "sum"), *case.types[1:]]  # type: ignore[arg-type]
    with pytest.raises(Refusal) as caught:
        case.op.infer(case.call(types))
    assert [d.code for d in caught.value.diags] == ["partial-consumed"]


@pytest.mark.parametrize(
    ("source", "target", "passes"),
    [
        ("bf16", "f32", True),
        ("f16", "f64", True),
        ("fp8e4m3", "f16", True),
        ("f32", "f32", True),
        ("f16", "bf16", False),
        ("bf16", "f16", False),
        ("f32", "bf16", False),
        ("f32", "i32", False),
        ("i32", "f32", False),
    ],
)
def test_cast_of_terms_only_widens(source: str, target: str, passes: bool):
    from tilefoundry.ir.dtype import dtype_of
    from tilefoundry.ops import find
    from tilefoundry.ops.base import Call

    op = find("cast")
    assert op is not None
    x = _partial(TensorType((4,), dtype_of(source)), "sum")
    call = Call("cast", (x,), {"dtype": dtype_of(target)})
    if passes:
        (made,) = types_of(op.infer(call))
        assert made.partial == ((AXIS, "sum"),)
        return
    with pytest.raises(Refusal):
        op.infer(call)
