"""What is checked, as data: a function's inputs, outputs, open extents and weights.

A child makes the record from the parsed program (:func:`describe`); the parent reads it
(:meth:`Signature.read`) and binds its open extents.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilefoundry.diag import refuse
from tilefoundry.evaluate import checkpoint_names
from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.ir.expr import Dim, render
from tilefoundry.ir.node import CALL, PARAM, Node, nodes
from tilefoundry.ir.program import Func, Module
from tilefoundry.ir.types import TensorType, TupleType
from tilefoundry.judge.extent import Extent, extent, names
from tilefoundry.judge.wire import Malformed

if TYPE_CHECKING:  # numpy, which a child may have to lack
    from tilefoundry.judge.tensor import Shape

INDEXING: Mapping[str, tuple[str, int, str | int]] = {
    "index_select": ("index", 0, "dim"),
    "index_add": ("index", 0, "dim"),
    "index_copy": ("index", 0, "dim"),
    "gather": ("index", 0, "axis"),
    "scatter_add": ("index", 0, "axis"),
    "rope": ("pos_ids", 2, 0),
}
"""Operations that index an axis: the index operand's name, the indexed operand's place, the
axis or the attribute that names it."""
MOVING = frozenset({"reshape", "transpose", "cast", "reshard", "local", "slice", "schedule"})
"""Operations whose results are values of their first operand."""


@dataclass(frozen=True)
class Declared:
    """A tensor as declared: name, element type, extents; ``index`` is the extent of the axis
    that its values index, where that is known."""

    name: str
    dtype: DType
    extents: tuple[Extent, ...]
    index: Extent | None = None

    def shape(self, dims: Mapping[str, int]) -> Shape:
        return tuple(extent(e, dims) for e in self.extents)

    @property
    def spelled(self) -> str:
        return "x".join(map(str, self.extents)) or "scalar"


@dataclass(frozen=True)
class Open:
    """An open extent with inclusive bounds."""

    name: str
    low: int
    high: float


@dataclass(frozen=True)
class Signature:
    """A function and its tensors."""

    module: str
    func: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    opens: tuple[Open, ...]
    weights: tuple[Declared, ...]
    stored: Mapping[str, str]
    """Each weight's name in a checkpoint."""
    needed: tuple[str, ...]
    """Weights of the module that the function reads."""

    @property
    def name(self) -> str:
        return f"{self.module}.{self.func}"

    @classmethod
    def read(cls, record: Mapping[str, Any], module: str) -> Signature:
        """The record of a child, of a function of the class ``module``; :class:`Malformed`
        where it has another form."""
        try:
            return cls(
                module,
                str(record["func"]),
                tuple(map(_declared, record["inputs"])),
                tuple(map(_declared, record["outputs"])),
                tuple(Open(str(n), int(lo), float(hi)) for n, lo, hi in record["opens"]),
                tuple(map(_declared, record["weights"])),
                {str(k): str(v) for k, v in record["stored"].items()},
                tuple(map(str, record["needed"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Malformed(f"a description without its {error}") from None

    def bind(self, given: Mapping[str, int], shapes: Sequence[Shape | None]) -> dict[str, int]:
        """Every open extent's value: as given, else as the shapes of files show it."""
        known = {open.name: open for open in self.opens}
        for name in given:
            if name not in known:
                expected, fix = f"one of {' '.join(known)}", "give extents that are open"
                if not known:
                    expected, fix = f"no --dim: {self.name} has no open extents", "leave --dim out"
                refuse("check-dim-unknown", None, name=name, function=self.name,
                       expected=expected, fix=fix)  # fmt: skip
        dims = dict(given)
        for declared, shape in zip(self.inputs, shapes, strict=True):
            for written, seen in zip(declared.extents, shape or (), strict=False):
                dims |= _solved(written, seen, known, dims)
        for name, open in known.items():
            high = "any" if math.isinf(open.high) else f"{open.high:.0f}"
            words = {"function": self.name, "low": open.low, "high": high}
            if name not in dims:
                refuse("check-dim-unbound", None, name=name, **words)
            if not open.low <= dims[name] <= open.high:
                refuse("check-dim-outside", None, name=name, value=dims[name], **words)
        return dims


def _solved(
    written: Extent, seen: int, known: Mapping[str, Open], dims: Mapping[str, int]
) -> dict[str, int]:
    """The one open extent that a written extent leaves unknown, if it is linear in it."""
    if isinstance(written, int):
        return {}
    unknown = [name for name in known if name in names(written) and name not in dims]
    if len(unknown) != 1:
        return {}
    at = {value: extent(written, {**dims, unknown[0]: value}) for value in (0, 1, 2)}
    slope = at[1] - at[0]
    if slope <= 0 or at[2] - at[1] != slope or (seen - at[0]) % slope:
        return {}
    return {unknown[0]: (seen - at[0]) // slope}


def _declared(record: Mapping[str, Any]) -> Declared:
    extents = tuple(e if isinstance(e, int) else str(e) for e in record["shape"])
    return Declared(str(record["name"]), DTYPES[record["dtype"]], extents, record.get("index"))


def describe(module: Module, func: str, weights: Mapping[str, TensorType]) -> dict[str, Any]:
    """The record of one function, as a child sends it."""
    found = module.funcs[func]
    places = dict(_index_extents(module, found, set()))
    inputs = [
        _record(p.name, p.tensor, places.get(p.name))
        for p in found.params
        if p.name not in found.weights
    ]
    results = found.result.items if isinstance(found.result, TupleType) else (found.result,)
    names = ["output"] if isinstance(found.result, TensorType) else [
        f"output[{n}]" for n in range(len(results))
    ]  # fmt: skip
    return {
        "func": func,
        "inputs": inputs,
        "outputs": [_record(n, r) for n, r in zip(names, results, strict=True)],
        "opens": [[o.name, int(o.lo), o.hi] for o in found.opens],
        "weights": [_record(name, type) for name, type in weights.items()],
        "stored": checkpoint_names(module),
        "needed": sorted(_needed(module, found, set())),
    }


def source_of(cls: type) -> str:
    """The file that defines a class."""
    return os.path.realpath(getattr(sys.modules[cls.__module__], "__file__", None) or "")


def _record(name: str, type: TensorType, index: Dim | None = None) -> dict[str, Any]:
    shape = [_extent(d) for d in type.shape]
    found = None if index is None else _extent(index)
    return {"name": name, "dtype": type.dtype.name, "shape": shape, "index": found}


def _extent(dim: Dim) -> Extent:
    return dim if isinstance(dim, int) else render(dim)


def _called(module: Module, func: Func) -> Iterator[tuple[Func, dict[str, Node]]]:
    """Each call in a function: the callee, and its arguments by parameter name."""
    for node in nodes(func.body):
        if node.op is CALL:
            named = node.attrs["names"]
            assert isinstance(named, tuple)
            yield module.funcs[str(node.attrs["func"])], dict(zip(named, node.args, strict=True))


def _needed(module: Module, func: Func, seen: set[str]) -> set[str]:
    if func.name in seen:
        return set()
    seen.add(func.name)
    bodies = [func, *(variant.func for variant in func.variants)]
    found = set(func.weights)
    for body in bodies:
        for callee, _ in _called(module, body):
            found |= _needed(module, callee, seen)
    return found


def _index_extents(module: Module, func: Func, seen: set[str]) -> Iterator[tuple[str, Dim]]:
    """Parameters whose values index an axis, with that axis's extent."""
    if func.name in seen:
        return
    seen.add(func.name)
    for node in nodes(func.body):
        if node.op.name not in INDEXING:
            continue
        name, data, axis = INDEXING[node.op.name]
        operands = [p.name for p in getattr(node.op, "params", ())]
        at = node.attrs.get(axis) if isinstance(axis, str) else axis
        if name not in operands or operands.index(name) >= len(node.args):
            continue
        origin = _origin(node.args[operands.index(name)])
        if origin and isinstance(at, int):
            yield origin, node.args[data].tensor.shape[at]
    for callee, args in _called(module, func):
        for name, bound in _index_extents(module, callee, seen):
            origin = _origin(args[name]) if name in args else None
            if origin and isinstance(bound, int):
                yield origin, bound


def _origin(node: Node) -> str | None:
    """The parameter whose values a node holds, if it holds no others."""
    while node.op.name in MOVING and node.args:
        node = node.args[0]
    return node.name if node.op is PARAM else None
