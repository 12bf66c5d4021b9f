"""Each operation against its own examples: type rule, value, footprint, cost, place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from op_cases import REFERENCES, Case, agree, bits, cases, reads, types_of

from tilefoundry.diag import Refusal
from tilefoundry.ir.access import Indirect, Whole
from tilefoundry.ir.expr import Dim, OpenDim, bounds, evaluate, substitute
from tilefoundry.ir.types import TensorType
from tilefoundry.ops import ALIASES, find, names
from tilefoundry.ops._elementwise import Elementwise
from tilefoundry.ops.base import torch_dtype

CASES = cases()
LANGUAGE = " ".join(
    (
        "add sub mul div floor_div mod min minimum max maximum fmin fmax cmp_eq cmp_ne cmp_lt",
        "cmp_le cmp_gt cmp_ge logical_and logical_or logical_not neg abs rsqrt sqrt square exp",
        "exp2 log log2 ceil floor round binary unary clamp where relu sigmoid silu gelu softplus",
        "tanh erf sin cos cast bitcast zeros empty full_like arange reshape transpose slice",
        "insert_slice concat stack split repeat_interleave index_select index_add index_copy topk",
        "argmax cache_update pow pad gather scatter_add cumsum conv1d einsum reduce matmul conv2d",
        "softmax rms_norm layer_norm rope quant reshard local schedule",
    )
)
ELSEWHERE = {"schedule", "empty"}
"""A schedule's meaning is another operation's; nothing is to be read from what is empty."""
DATA_DEPENDENT = {"index_select", "index_add", "index_copy", "gather", "scatter_add"}
DATA_DEPENDENT |= {"cache_update", "stack"}
"""Which elements are read depends on data, or on which operand a coordinate falls in."""
UNREAD = {"full_like"}
"""The operand gives its type only."""
UPDATES = {"insert_slice", "index_add", "index_copy", "scatter_add"}
"""Result elements that no point of the relation writes are the destination's."""
COVERED = {("insert_slice", 0), ("conv1d", 1), ("conv2d", 1)}
"""Operands whose read elements do not all arrive: replaced ones, taps on the padding."""

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)


def test_language_is_covered():
    known = names() | set(ALIASES)
    assert sorted(set(LANGUAGE.split()) - known) == []


def test_every_operation_has_examples_and_a_reference():
    judged = {c.op.name for c in CASES} | ELSEWHERE
    assert sorted(names() - judged) == []
    assert sorted(names() - set(REFERENCES) - ELSEWHERE) == []


@pytest.mark.parametrize("name", sorted(names()))
def test_an_operation_is_a_file(name):
    op = find(name)
    assert op is not None and op.name == name
    module = __import__(f"tilefoundry.ops.{name}", fromlist=["OP"])
    first = (module.__doc__ or "").splitlines()[0]
    assert re.match(rf"{name}\b", first) and len(first) > len(name) + 10
    text = Path(module.__file__ or "").read_text()
    assert not re.search(r"^(import|from) (torch|numpy)", text, re.MULTILINE)


@every_case
def test_type_and_value(case: Case):
    made = case.op.infer(case.call())
    for seed in (1, 2):
        args = case.draw(seed)
        before = [None if a is None else bits(a).copy() for a in args]
        out = case.run(args)
        for got, near, type in zip(out, case.reference(args), types_of(made), strict=True):
            assert tuple(got.shape) == type.shape
            assert got.dtype is torch_dtype(type.dtype)
            agree(got, near, type.dtype, case.terms)
        for arg, bytes_ in zip(args, before, strict=True):
            assert arg is None or np.array_equal(bits(arg), bytes_)


# footprint


def _places(coords: Any, shape: Any, env: Any, points: int) -> tuple[Any, Any]:
    """(flat indices, mask of those inside) per point, a column per element read there."""
    flat, inside = np.zeros((points, 1), int), np.ones((points, 1), bool)
    for c, extent in zip(coords, shape, strict=True):
        if isinstance(c, (Whole, Indirect)):
            at = np.broadcast_to(np.arange(extent), (points, extent))
        else:
            at = np.broadcast_to(np.asarray(evaluate(c, env)), (points,))[:, None]
        flat = (flat[:, :, None] * extent + at[:, None, :]).reshape(points, -1)
        ok = (at >= 0) & (at < extent)
        inside = (inside[:, :, None] & ok[:, None, :]).reshape(points, -1)
    return flat, inside


def claimed(case: Case) -> list[list[Any]]:
    """Per operand, per result: which operand element the relation says reaches which result."""
    call = case.call()
    made = types_of(case.op.infer(call))
    relation = case.op.relation(call, tuple(t.shape for t in made))
    grid = np.indices([int(d.extent) for d in relation.domain])  # type: ignore[arg-type]
    points = int(np.prod(grid.shape[1:], dtype=int))
    env: Any = {d.var: g.reshape(-1) for d, g in zip(relation.domain, grid, strict=True)}
    out: list[list[Any]] = []
    for n, type in enumerate(case.types):
        row: list[Any] = []
        for m, result in enumerate(made):
            says = np.zeros((_size(type) if type else 0, _size(result)), bool)
            if type is not None and points:
                at, read = _places(reads(relation, n), type.shape, env, points)
                to, written = _places(relation.results[m], result.shape, env, points)
                pairs = read[:, :, None] & written[:, None, :]
                at, to = np.broadcast_arrays(at[:, :, None], to[:, None, :])
                says[at[pairs], to[pairs]] = True
            row.append(says)
        out.append(row)
    if case.op.name in UPDATES:
        out[0][0] |= np.diag(~np.any([row[0].any(axis=0) for row in out], axis=0))
    return out


def _size(type: TensorType) -> int:
    return int(np.prod(type.shape, dtype=int))  # type: ignore[arg-type]


def _draws(case: Case) -> list[list[Any]]:
    """Random operands, and all ones and all zeros, so that no operand masks another."""
    flat = [
        [None if a is None else torch.full_like(a.float(), v).to(a.dtype) for a in case.draw(0)]
        for v in (1, 0)
    ]
    return [case.draw(1), case.draw(2), *flat, *(case.draw(n) for n in range(3, 9))]


def _perturbed(x: Any, at: int, kind: str, extent: int) -> Any:
    """Copies of ``x`` with one element changed, the strongest change first."""
    old = x.reshape(-1)[at]
    if kind == "index":
        values: list[Any] = [(int(old) + d) % extent for d in (1, 2)]
    elif x.dtype is torch.bool:
        values = [not bool(old)]
    elif x.is_floating_point():
        values = [float("nan"), 50.0, -50.0, 0.0, float(old) + 1]
    else:
        values = [(int(old) + 1) % 120, 0, 119]
    for value in values:
        copy = x.clone()
        copy.reshape(-1)[at] = value
        yield copy


def influence(case: Case, says: list[list[Any]], exact: list[bool]) -> list[list[Any]]:
    """Per operand, per result: where a change of an element is seen to arrive.

    Looks at every element at least once, and where all that ``says`` claims must be seen
    (``exact``) until it has been.
    """
    spec = case.example.values
    kinds = (spec,) * len(case.types) if isinstance(spec, str) else spec
    seen = [[np.zeros_like(s) for s in row] for row in says]
    for first, args in enumerate(_draws(case)):
        try:
            base = [bits(r).copy() for r in case.run(args)]
        except Refusal:  # zeros drawn as divisors
            continue
        for n, arg in enumerate(args):
            for at in range(0 if arg is None else arg.numel()):
                seen_all = all(_within(x[at], y[at]) for x, y in zip(says[n], seen[n], strict=True))
                if first and (seen_all or not exact[n]):
                    continue
                extent = case.index_extent() if kinds[n] == "index" else 0
                for changed in _perturbed(arg, at, kinds[n], extent):
                    try:
                        now = case.run([*args[:n], changed, *args[n + 1 :]])
                    except Refusal:
                        continue
                    for m, (a, b) in enumerate(zip(base, now, strict=True)):
                        seen[n][m][at] |= (a != bits(b)).any(axis=1)
                    if all(_within(s[at], d[at]) for s, d in zip(says[n], seen[n], strict=True)):
                        break
    return seen


def _within(said: Any, done: Any) -> bool:
    return not (said & ~done).any()


@every_case
def test_footprint(case: Case):
    call, name = case.call(), case.op.name
    shapes = tuple(t.shape for t in types_of(case.op.infer(call)))
    relation = case.op.relation(call, shapes)
    exact = [
        name not in DATA_DEPENDENT | UNREAD
        and (name, n) not in COVERED
        and not any(isinstance(c, (Whole, Indirect)) for c in coords)
        for n, coords in enumerate(reads(relation, n) for n in range(len(case.types)))
    ]
    says = claimed(case)
    does = influence(case, says, exact)
    for n, (said, done) in enumerate(zip(says, does, strict=True)):
        for s, d in zip(said, done, strict=True):
            assert _within(d, s), ("not in the relation", n, np.argwhere(d & ~s)[:5])
            assert not exact[n] or _within(s, d), ("nothing arrives", n, np.argwhere(s & ~d)[:5])
            assert name not in UNREAD or not d.any()


# cost


@every_case
def test_work(case: Case):
    call = case.call()
    made = types_of(case.op.infer(call))
    counts = case.op.work(call, tuple(t.shape for t in made)).counts
    assert all(isinstance(n, int) and n >= 0 for n in counts.values())
    for axis in range(3):
        opened = _opened(case, axis)
        if opened is None:
            continue
        types, dim = opened
        try:
            symbolic = case.call(types)
            shapes = tuple(t.shape for t in types_of(case.op.infer(symbolic)))
        except Refusal:  # the axes that must agree with this one are not opened
            continue
        found = case.op.work(symbolic, shapes).counts
        at = case.types[0].shape[axis]  # type: ignore[union-attr]
        concrete = {k: substitute(n, {dim: at}) for k, n in found.items()}
        assert {k: n for k, n in concrete.items() if n} == counts
        assert all(bounds(n)[0] >= 0 for n in found.values())


def _opened(case: Case, axis: int) -> tuple[list[TensorType | None], OpenDim] | None:
    """Operand types with an axis of the first one open, in elementwise operations in all."""
    first = case.types[0] if case.types else None
    if first is None or axis >= first.rank or first.shape[axis] in (0, 1):
        return None
    dim = OpenDim("n", int(first.shape[axis]), 4096)  # type: ignore[arg-type]
    back = axis - first.rank
    types: list[TensorType | None] = [_with(first, back, dim.expr())]
    for other in case.types[1:]:
        spread = isinstance(case.op, Elementwise) or case.op.name == "binary"
        same = other is not None and -back <= other.rank and other.shape[back] == first.shape[back]
        types.append(_with(other, back, dim.expr()) if spread and same and other else other)
    return types, dim


def _with(type: TensorType, axis: int, extent: Dim) -> TensorType:
    shape = list(type.shape)
    shape[axis] = extent
    return type.with_(shape=tuple(shape))


@pytest.mark.parametrize(
    "case", [c for c in CASES if isinstance(c.op, Elementwise)], ids=lambda c: c.id
)
def test_work_halves_with_the_axis(case: Case):
    whole = case.call()
    counts = case.op.work(whole, tuple(t.shape for t in types_of(case.op.infer(whole)))).counts
    types = [
        t if t is None or t.rank < 2 or t.shape[-2] != 4 else _with(t, -2, 2) for t in case.types
    ]
    half = case.call(types)
    halved = case.op.work(half, tuple(t.shape for t in types_of(case.op.infer(half)))).counts
    assert {k: 2 * n for k, n in halved.items()} == dict(counts)  # type: ignore[operator]
