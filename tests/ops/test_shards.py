"""Distribution: where the rule accepts a split, each unit computes its part from its part.

Two witnesses. Poisoned: a unit evaluates the whole with everything it does not hold
replaced by NaN or noise, and the elements it owns must be right. Local: it evaluates on
slices alone, and what units return is put together again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product as cartesian
from typing import Any

import numpy as np
import pytest
import torch
from op_cases import Case, agree, as_numpy, cases, reads, types_of

from tilefoundry.diag import Refusal
from tilefoundry.ir.access import AccessRelation, Iter
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis, Mesh, arrange
from tilefoundry.ir.shard import Digit, ShardLayout, from_digits
from tilefoundry.ir.types import TensorType
from tilefoundry.ops._elementwise import Elementwise

MESHES = (
    Mesh(arrange("cta", (2,), ("u",))),
    Mesh(arrange("cta", (2, 3), ("u", "v"))),
)
OF_THE_WHOLE = {"reshape", "slice", "insert_slice", "split", "concat", "pad", "index_select"}
OF_THE_WHOLE |= {"index_add", "index_copy", "gather", "scatter_add", "cache_update", "bitcast"}
OF_THE_WHOLE |= {"conv1d", "conv2d", "rope"}
"""Their attributes or indices count in the whole: a slice alone means something else.
(rope distributes q and k apart, so that one call has no common slices.)"""
PLACING = {"reshard", "local"}
"""They change who holds what."""
COMBINE = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce}

CASES = [c for c in cases() if c.op.name not in PLACING]
Unit = dict[Axis, int]


def _digits(shape: Any, axes: Any) -> tuple[Digit, ...]:
    """Splits of each axis of a mesh over (logical axis or None), outer axes outermost."""
    out: list[Digit] = []
    left = list(shape)
    for axis, dim in axes:
        if dim is not None:
            left[dim] //= axis.extent
            out.append(Digit(axis, dim, left[dim]))
    return tuple(out)


def _divides(shape: Any, axes: Any) -> bool:
    left = list(shape)
    for axis, dim in axes:
        if dim is None:
            continue
        if left[dim] == 0 or left[dim] % axis.extent:
            return False
        left[dim] //= axis.extent
    return True


def placements(case: Case, mesh: Mesh, limit: int = 8) -> list[list[TensorType | None]]:
    """Operand types split in different ways: each axis alone, operands alike, a sample."""
    choices: list[list[TensorType | None]] = []
    for type in case.types:
        if type is None:
            choices.append([None])
            continue
        ways = cartesian(*([None, *range(type.rank)] for _ in mesh.axes))
        pairs = [tuple(zip(mesh.axes, dims, strict=True)) for dims in ways]
        choices.append([_split(type, p) for p in pairs if _divides(type.shape, p)])
    alone = [
        [c if m == n else held[0] for m, held in enumerate(choices)]
        for n, options in enumerate(choices)
        for c in options[1:]
    ]
    every = int(np.prod([len(c) for c in choices], dtype=float))
    rng = np.random.default_rng(len(case.id))
    picked = [[c[rng.integers(len(c))] for c in choices] for _ in range(min(every, limit))]
    return [*alone, *_alike(case, mesh), *picked]


def _split(type: TensorType, axes: Any) -> TensorType:
    digits = _digits(type.shape, axes)
    return type.with_(layout=from_digits(type.shape, digits) if digits else None, storage="rmem")


def _alike(case: Case, mesh: Mesh) -> list[list[TensorType | None]]:
    """All operands split on the same axis, counted from the back, where they have it."""
    out: list[list[TensorType | None]] = []
    rank = max((t.rank for t in case.types if t is not None), default=0)
    for back in range(1, rank + 1):
        row: list[TensorType | None] = []
        extent = max((int(t.shape[-back]) for t in case.types if t and t.rank >= back), default=1)  # type: ignore[arg-type]
        axis = mesh.axes[-1]
        for t in case.types:
            whole = t is None or t.rank < back or t.shape[-back] != extent
            plan = () if whole else ((axis, t.rank - back),)
            ok = t is not None and _divides(t.shape, plan)
            row.append(_split(t, plan if ok else ()) if t is not None else None)
        out.append(row)
    return out


def _owned(type: TensorType, unit: Unit, skip: frozenset[Axis] = frozenset()) -> Any:
    """Elements of the whole that a unit holds; axes in ``skip`` are not asked for."""
    shape: Any = type.shape
    mask = np.ones(shape, bool)
    for digit in type.digits:
        if digit.axis in skip:
            continue
        index = np.arange(shape[digit.dim]) // digit.inner % digit.axis.extent
        place = [1] * len(shape)
        place[digit.dim] = -1
        mask &= (index == unit[digit.axis]).reshape(place)
    return mask


def _poisoned(case: Case, x: Any, type: TensorType, unit: Unit, partial: dict[Axis, str]) -> Any:
    """``x`` with what the unit does not hold spoilt, or neutral where it holds a term."""
    kept = _owned(type, unit, frozenset(partial))
    held = _owned(type, unit)
    lost = torch.as_tensor(np.asarray(~kept))
    out = torch.where(lost, _spoil(x), x)
    kinds = {partial[d.axis] for d in type.digits if d.axis in partial}
    for kind in kinds:
        idle = torch.as_tensor(np.asarray(kept & ~held))
        out = torch.where(idle, torch.tensor(_neutral(case, x, kind)).to(x.dtype), out)
    return out


def _spoil(x: Any) -> Any:
    if x.is_floating_point():
        return torch.full(x.shape, float("nan")).to(x.dtype)
    return ~x if x.dtype is torch.bool else x.roll(1, 0) if x.dim() else x


def _neutral(case: Case, x: Any, kind: str) -> Any:
    if kind == "sum" or case.example.attrs.get("kind") == "abs_max":
        return 0
    low = kind == "max"
    if x.is_floating_point():
        return float("-inf") if low else float("inf")
    return torch.iinfo(x.dtype).min if low else torch.iinfo(x.dtype).max


def _indices(case: Case) -> set[int]:
    spec = case.example.values
    kinds = (spec,) * len(case.types) if isinstance(spec, str) else spec
    return {n for n, kind in enumerate(kinds) if kind == "index"}


@dataclass(frozen=True)
class Placed:
    """A call with split operands that the rule accepted."""

    case: Case
    mesh: Mesh
    types: list[TensorType | None]

    @cached_property
    def relation(self) -> AccessRelation:
        call = self.case.call(self.types)
        return self.case.op.relation(call, tuple(t.shape for t in self.made))

    @cached_property
    def made(self) -> tuple[TensorType, ...]:
        return types_of(self.case.op.infer(self.case.call(self.types)))

    def units(self) -> list[Unit]:
        return list(self.mesh.coordinates())

    def poisoned(self, args: list[Any], unit: Unit) -> list[Any]:
        partial = {a: k for t in self.made for a, k in t.partial}
        skip = _indices(self.case)
        given = [
            a if a is None or t is None or n in skip else _poisoned(self.case, a, t, unit, partial)
            for n, (a, t) in enumerate(zip(args, self.types, strict=True))
        ]
        return [as_numpy(r) for r in self.case.run(given)]

    def places(self) -> dict[Axis, set[tuple[Iter | None, Dim]]]:
        """What each mesh axis splits of the iteration space (None: no one dimension)."""
        out: dict[Axis, set[tuple[Iter | None, Dim]]] = {}
        for n, t in enumerate(self.types):
            for d in t.digits if t is not None else ():
                at = self.relation.iter_of(reads(self.relation, n)[d.dim])
                out.setdefault(d.axis, set()).add((at, d.inner))
        return out

    def local(self, args: list[Any], unit: Unit) -> list[Any]:
        """Results of the unit's slices, set into arrays of the whole shape."""
        call = self.case.call(self.types)
        relation = self.relation
        places = {a: p for a, found in self.places().items() for p in found}
        slices = []
        for n, (a, t) in enumerate(zip(args, self.types, strict=True)):
            if a is None or t is None:
                slices.append(a)
                continue
            for dim, coord in enumerate(reads(relation, n)):
                found = relation.iter_of(coord)
                index = np.arange(t.shape[dim])
                keep = np.ones(len(index), bool)
                for d in t.digits:
                    if d.dim == dim:
                        keep &= index // d.inner % d.axis.extent == unit[d.axis]
                for axis, (place, inner) in places.items():
                    if place is not None and place is found and place.extent == t.shape[dim]:
                        keep &= index // inner % axis.extent == unit[axis]
                a = a.index_select(dim, torch.from_numpy(np.nonzero(keep)[0]))
            slices.append(a)
        local_types = tuple(t.with_(shape=t.local_shape, layout=None) for t in self.made)
        result = self.case.op.infer(
            self.case.call([_bare(s, t) for s, t in zip(slices, self.types, strict=True)])
        )
        out = []
        for got, t, want in zip(
            self.case.run(slices, call, result), self.made, local_types, strict=True
        ):
            assert tuple(got.shape) == want.shape
            whole = np.full(t.shape, np.nan)  # type: ignore[arg-type]
            whole[_owned(t, unit)] = as_numpy(got).reshape(-1)
            out.append(whole)
        return out


def _bare(x: Any, type: TensorType | None) -> TensorType | None:
    return None if type is None else type.with_(shape=tuple(x.shape), layout=None)


def _judge(placed: Placed, results: list[list[Any]], nears: Any) -> None:
    """Owned elements of every unit, terms combined, against the reference."""
    case, units = placed.case, placed.units()
    for m, (type, near) in enumerate(zip(placed.made, nears, strict=True)):
        partial = dict(type.partial)
        groups: dict[Any, list[int]] = {}
        for n, unit in enumerate(units):
            key = tuple(c for a, c in unit.items() if a not in partial)
            groups.setdefault(key, []).append(n)
        for members in groups.values():
            terms = [results[n][m] for n in members]
            kind = next(iter(partial.values()), None)
            value = COMBINE[kind](np.stack(terms)) if kind else terms[0]
            mask = _owned(type, units[members[0]])
            shown = near._replace(value=np.where(mask, near.value, 0))
            got = torch.from_numpy(np.where(mask, value, 0).astype(near.value.dtype))
            rounded = len(members) if kind == "sum" and type.dtype.is_float else 0
            agree(got, shown, type.dtype, case.terms, rounded)


@pytest.mark.parametrize("mesh", MESHES, ids=["2", "2x3"])
@pytest.mark.parametrize("case", [c for c in CASES if c.example.inputs], ids=lambda c: c.id)
def test_shards(case: Case, mesh: Mesh):
    args = case.draw(3)
    nears = case.reference(args)
    for types in placements(case, mesh):
        placed = Placed(case, mesh, types)
        try:
            made = placed.made
        except Refusal:
            continue
        assert len(nears) == len(made)
        units = placed.units()
        _judge(placed, [placed.poisoned(args, u) for u in units], nears)
        alike = all(len(p) == 1 for p in placed.places().values())
        if alike and case.op.name not in OF_THE_WHOLE:
            _judge(placed, [placed.local(args, u) for u in units], nears)


@pytest.mark.parametrize(
    "case", [c for c in CASES if isinstance(c.op, Elementwise)], ids=lambda c: c.id
)
def test_elementwise_accepts_any_kept_axis(case: Case):
    shape: Any = types_of(case.op.infer(case.call()))[0].shape
    axis = MESHES[0].axes[0]
    for dim, extent in enumerate(shape):
        if extent % axis.extent:
            continue
        types: list[TensorType | None] = []
        for t in case.types:
            at = dim - len(shape) + t.rank if t is not None else -1
            split = t is not None and at >= 0 and t.shape[at] == extent
            types.append(_split(t, ((axis, at),)) if split and t is not None else t)
        (made,) = types_of(case.op.infer(case.call(types)))
        assert [(d.axis, d.dim) for d in made.digits] == [(axis, dim)]
        assert made.local_shape[dim] == extent // 2


def test_layouts_that_say_the_same_are_equal() -> None:
    """64 rows over 8 units of 8, written in three ways; other places are other layouts."""
    (axis, *_), (_, other) = MESHES[0].axes, MESHES[1].axes
    flat = ShardLayout((2, 32, 16), axes=(axis, None, None))
    nested = ShardLayout(((2, 32), 16), axes=(axis, None, None))
    derived = from_digits((64, 16), (Digit(axis, 0, 32),))
    assert flat == nested == derived and len({flat, nested, derived}) == 1
    assert derived.shape == (2, 32, 16)
    cyclic = from_digits((64, 16), (Digit(axis, 0, 1),))
    assert cyclic.shape == (32, 2, 16) and cyclic != flat
    assert flat != ShardLayout((2, 32, 16), (512, 16, 1), (axis, None, None))
    terms = ((axis, "sum"), (other, "max"))
    assert ShardLayout((64,), partial=terms) == ShardLayout((64,), partial=terms[::-1])
    assert ShardLayout((64,), partial=terms) != ShardLayout((64,), partial=terms[:1])


def test_extents_of_one_keep_the_axes_clear() -> None:
    """Flat modes 4 and 1 of axis 0 would be read as 4 alone."""
    one = Axis("cta", "one", 1, 1)
    digits = (Digit(MESHES[0].axes[0], 0, 1), Digit(one, 0, 1))
    layout = from_digits((2, 8), digits)
    assert [len(g) for g in layout.groups((2, 8))] == [2, 1]
    assert {(d.axis, d.dim) for d in layout.digits((2, 8))} == {(d.axis, d.dim) for d in digits}
