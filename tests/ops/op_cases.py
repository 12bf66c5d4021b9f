"""Examples of the operations as test cases: operands drawn, calls bound, bounds derived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import reference
import reference_shapes
import torch

from tilefoundry.ir.access import AccessRelation, Coord, Whole
from tilefoundry.ir.dtype import DType, dtype_of
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops import find, names
from tilefoundry.ops.base import Call, Example, Op, torch_dtype
from tilefoundry.ops.signature import Operand, bind

REFERENCES: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {
    **reference.REFERENCES,
    **reference_shapes.REFERENCES,
}

UNIT = {"f64": 2**-53, "f32": 2**-24, "f16": 2**-11, "bf16": 2**-8}
UNIT |= {"fp8e4m3": 2**-4, "fp8e5m2": 2**-3}
"""Half of one unit in the last place, relative: the error of one rounding."""
TINY = {"f64": 2**-1074, "f32": 2**-149, "f16": 2**-24, "bf16": 2**-133}
TINY |= {"fp8e4m3": 2**-9, "fp8e5m2": 2**-16}
"""The smallest number above 0."""

LINEAR = {"add", "sub", "matmul", "einsum", "conv1d", "conv2d", "cumsum"}
LINEAR |= {"index_add", "scatter_add", "reduce"}
"""Sums of products: the error scales with the sum of the terms' magnitudes."""


@dataclass(frozen=True)
class Case:
    """One example of one operation."""

    op: Op
    example: Example
    number: int

    @property
    def id(self) -> str:
        shapes = "-".join("none" if i is None else f"{i[1]}" for i in self.example.inputs)
        return f"{self.op.name}-{self.number}-{shapes}"

    @property
    def types(self) -> tuple[TensorType | None, ...]:
        return tuple(
            None if i is None else TensorType(i[0], dtype_of(i[1])) for i in self.example.inputs
        )

    def call(self, types: Sequence[TensorType | None] | None = None) -> Call:
        """The example bound as the builder binds it, with these operand types."""
        operands = list(self.types if types is None else types)
        attrs = dict(self.example.attrs)
        given: list[Any] = []
        for param in self.op.params:  # in order, up to the last operand
            if operands and isinstance(param, Operand):
                count = len(operands) if param.many else 1
                given += operands[:count]
                del operands[:count]
            elif operands:
                given.append(attrs.pop(param.name))
        bound = bind(f"tf.{self.op.name}", self.op.params, given, attrs, None)
        return Call(self.op.name, bound.operands, bound.attrs)  # type: ignore[arg-type]

    def draw(self, seed: int) -> list[Any]:
        """Operands as torch tensors; each from its own stream."""
        spec = self.example.values
        count = len(self.example.inputs)
        kinds = (spec,) * count if isinstance(spec, str) else spec
        return [
            None if t is None else self._one(t, kinds[n], np.random.default_rng((seed, n)))
            for n, t in enumerate(self.types)
        ]

    def index_extent(self) -> int:
        """Every index below this is valid: the indexed axis, or the shortest one."""
        first = self.types[0]
        assert first is not None
        axis = self.example.attrs.get("dim", self.example.attrs.get("axis"))
        extents = first.shape if axis is None else (first.shape[axis],)
        return min((int(e) for e in extents), default=1)  # type: ignore[arg-type]

    def _one(self, type: TensorType, kind: str, rng: np.random.Generator) -> Any:
        shape: Any = type.shape
        dtype = type.dtype
        size = int(np.prod(shape, dtype=int))
        if kind == "index":
            extent = self.index_extent()
            pick = (
                rng.permutation(extent)[:size]
                if size <= extent
                else rng.integers(extent, size=size)
            )
            values = pick.reshape(shape)
        elif dtype.kind == "bool":
            values = rng.integers(2, size=shape)
        elif kind == "small":
            values = rng.integers(0 if dtype.kind == "uint" else -4, 5, size=shape)
        elif kind == "unit":
            values = rng.random(shape)
        elif kind == "positive":
            whole = not dtype.is_float
            values = rng.integers(1, 9, size=shape) if whole else rng.uniform(0.1, 4.0, shape)
        elif dtype.is_float:
            values = rng.standard_normal(shape)
        else:
            values = rng.integers(0 if dtype.kind == "uint" else -100, 101, size=shape)
        return torch.tensor(np.asarray(values)).to(torch_dtype(dtype))

    def run(self, args: Sequence[Any], call: Call | None = None, type: Type | None = None) -> Any:
        """Evaluate; results always as a tuple."""
        call = call or self.call()
        made = type or self.op.infer(call)
        out = self.op.evaluate([a for a in args], call.attrs, made)
        return out if isinstance(out, (tuple, list)) else (out,)

    def reference(self, args: Sequence[Any]) -> tuple[Near, ...]:
        """The independent answer, with the scale of its error."""
        attrs = {**self.call().attrs, **self.example.attrs}
        arrays = [as_numpy(a) for a in args]
        function = REFERENCES[self.op.name]
        found = function(arrays, attrs)
        items = found if type(found) is tuple else (found,)
        scales: Any = [None] * len(items)
        if self.op.name in LINEAR:
            sizes = function([a if a is None else np.abs(a) for a in arrays], attrs)
            scales = sizes if type(sizes) is tuple else (sizes,)
        return tuple(
            item if isinstance(item, Near) else Near(np.asarray(item), scale)
            for item, scale in zip(items, scales, strict=True)
        )

    @property
    def terms(self) -> int:
        """Elements that one result combines: what the relation reduces or reads whole."""
        call = self.call()
        shapes = tuple(t.shape for t in types_of(self.op.infer(call)))
        relation = self.op.relation(call, shapes)
        reduced = prod(int(d.extent) for d in relation.domain if d.reduce)  # type: ignore[arg-type]
        whole = [
            prod(int(e) for c, e in zip(coords, t.shape, strict=True) if isinstance(c, Whole))  # type: ignore[arg-type]
            for coords, t in ((reads(relation, n), t) for n, t in enumerate(self.types))
            if t is not None
        ]
        return max(1, reduced) * max([1, *whole])


Near = reference.Near


def as_numpy(x: Any) -> Any:
    """Floats as float64, exactly; integers and bools as they are."""
    if x is None:
        return None
    return x.to(torch.float64).numpy() if x.is_floating_point() else x.numpy()


def cases() -> list[Case]:
    found = [(name, find(name)) for name in sorted(names())]
    return [
        Case(op, example, n)
        for _, op in found
        if op is not None
        for n, example in enumerate(op.examples)
    ]


def reads(relation: AccessRelation, n: int) -> tuple[Coord, ...]:
    """Coordinates of operand ``n``; operands left out at the end have none."""
    return relation.operands[n] if n < len(relation.operands) else ()


def types_of(type: Type) -> tuple[TensorType, ...]:
    return type.items if isinstance(type, TupleType) else (type,)


def bound(near: Near, dtype: DType, terms: int) -> Any:
    """Largest error allowed, element by element.

    Rounding to the result's dtype: u·|value|, or half the smallest number. Before it, in
    float32 (float64 for f64): a sum of n terms errs by at most n·u·Σ|terms| (Higham,
    Accuracy and Stability, 4.2); the special functions of the vector libraries by one
    ulp, 2u, and no operation chains more than three of them with two roundings: 8u.
    The reference, in float64, errs as much as an f64 evaluation.
    """
    value = np.abs(near.value.astype(np.float64))
    if not dtype.is_float:
        if near.value.dtype.kind != "f":
            return np.zeros_like(value)
        return 0.5 + 8 * UNIT["f32"] * value  # a real number rounded to the nearest integer
    wide = UNIT["f64"] * 2 if dtype.name == "f64" else UNIT["f32"]
    scale = value if near.scale is None else np.maximum(np.abs(near.scale), value)
    return UNIT[dtype.name] * value * 1.001 + (terms + 8) * wide * scale + TINY[dtype.name] / 2


def agree(got: Any, near: Near, dtype: DType, terms: int, rounded: int = 0) -> None:
    """Assert that ``got`` is the reference's value up to the bound.

    ``rounded``: how many terms were rounded to the dtype before they were combined.
    """
    value, found = near.value, as_numpy(got)
    assert found.shape == value.shape
    value, found = np.atleast_1d(value), np.atleast_1d(found)
    if not dtype.is_float and value.dtype.kind != "f":
        np.testing.assert_array_equal(found, value)
        return
    limit = bound(near, dtype, terms)
    if rounded:
        limit = limit + rounded * (UNIT[dtype.name] * np.abs(near.scale) + TINY[dtype.name])
    limit = np.atleast_1d(limit)
    same = (found == value) | (np.isnan(found) & np.isnan(value.astype(np.float64)))
    with np.errstate(invalid="ignore"):
        close = np.abs(found.astype(np.float64) - value) <= limit
    worst = np.nonzero(~(same | close))
    assert (same | close).all(), (found[worst][:4], value[worst][:4], limit[worst][:4])


def bits(x: Any) -> Any:
    """A tensor's bytes, one row per element, so that NaN equals itself."""
    if not x.numel():
        return np.zeros((0, x.element_size()), np.uint8)
    flat = x.contiguous().reshape(-1)
    return flat.view(torch.uint8).reshape(flat.numel(), flat.element_size()).numpy()
