"""What an operation is: one file with its type rule, access relation, evaluation,
cost and examples. Everything else about it is derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NoReturn

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.access import AccessRelation
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Mesh
from tilefoundry.ir.node import Node
from tilefoundry.ir.types import IMMEDIATE, TensorType, TupleType, Type
from tilefoundry.ops.propagate import Partial, distribute, refuse_partial
from tilefoundry.ops.signature import Param

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Context:
    """What the surrounding program offers an operation's rules.

    ``storages`` are the target's, farthest first; ``shared(storage, level)`` says
    whether the units of ``level`` see one copy of a value in ``storage``;
    ``instruction(instr, span)`` names the operation an instruction implements;
    ``contract(instr, mesh, operands, span, nodes)`` is the legal use of an instruction, with
    its repeats, or a refusal.
    """

    storages: tuple[str, ...] = ("gmem", "smem", "rmem")
    shared: Callable[[str, str], bool] = lambda storage, level: storage == "gmem"
    instruction: Callable[[Any, Span | None], Any] | None = None
    contract: Callable[..., Any] | None = None

    def nearest(self, storages: Sequence[str]) -> str:
        """The storage closest to the execution units."""
        known = [s for s in storages if s in self.storages]
        return max(known, key=self.storages.index) if known else self.storages[0]


@dataclass(frozen=True)
class Call:
    """One use of an operation: operand types (None: left out), attributes, place."""

    op: str
    args: tuple[TensorType | None, ...]
    attrs: Mapping[str, Any]
    span: Span | None = None
    mesh: Mesh = field(default_factory=Mesh)
    context: Context = field(default_factory=Context)
    nodes: tuple[Node | None, ...] = ()
    """The values of the operands, where the call stands in a program."""

    def arg(self, n: int) -> TensorType:
        """Operand ``n``, known to be present."""
        found = self.args[n]
        assert found is not None
        return found

    def refuse(self, code: str, **fields: Any) -> NoReturn:
        refuse(code, self.span, op=f"tf.{self.op}", **fields)


@dataclass(frozen=True)
class Result:
    """Shape and element type of one result."""

    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Work:
    """Operations by class and dtype: (class, dtype name) -> count.

    Classes: ``matrix`` (multiply and add of a contraction count 2), ``float``
    (add, multiply, compare, convert in floating point), ``int``, ``special``
    (exp, log, rsqrt, sin and kin, one per evaluation).
    """

    counts: Mapping[tuple[str, str], Dim] = field(default_factory=dict)

    def __add__(self, other: Work) -> Work:
        total = dict(self.counts)
        for key, n in other.counts.items():
            total[key] = total.get(key, 0) + n
        return Work(total)

    def times(self, n: Dim) -> Work:
        return Work({key: count * n for key, count in self.counts.items()})


def work(dtype: DType, **classes: Dim) -> Work:
    """``work(F32, float=2 * n, special=n)``; zero counts are dropped."""
    return Work({(kind, dtype.name): n for kind, n in classes.items() if n != 0})


@dataclass(frozen=True)
class Example:
    """A use of the operation that conformance tests are derived from.

    ``inputs`` are (shape, dtype name) per operand, None for one left out; ``values``
    names the range they are drawn from: ``any`` (normal), ``positive``, ``unit``
    (0..1), ``small`` (small integers), ``index`` (valid indices), or one per operand.
    """

    inputs: tuple[tuple[tuple[int, ...], str] | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    values: str | tuple[str, ...] = "any"


class Bits(Enum):
    """What the bits of an operation's results depend on, beside the numbers it is given.

    ``ELEMENTS``: nothing. ``ROWS``: the order in which torch combines elements, which is that of
    an operand's own axes, whatever axes lead them. ``WHOLE``: all that torch computes in one call
    (blocks of a contraction; vector code, whose last elements go through scalar code).
    """

    ELEMENTS = "elements"
    ROWS = "rows"
    WHOLE = "whole"


class Op:
    """Base of all operations; a subclass's single instance is its file's ``OP``."""

    name: str
    params: tuple[Param, ...] = ()
    examples: tuple[Example, ...] = ()
    bits: Bits = Bits.ELEMENTS

    def results(self, call: Call) -> tuple[Result, ...]:
        """Shapes and dtypes; refuses operands that do not fit."""
        raise NotImplementedError

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        """Which elements each point of the domain reads and writes."""
        raise NotImplementedError

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        """The value on torch tensors; attributes and ``result`` hold plain integers.

        Returns a tensor of exactly ``result``'s shape and dtype (a tuple for several).
        """
        raise NotImplementedError

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        """Arithmetic of computing results of ``shapes`` from operands as in ``call``.

        Shapes may be whole or one unit's part; counts are symbolic where they are.
        """
        raise NotImplementedError

    def partial(self, call: Call) -> tuple[Partial, ...]:
        """Partial axes that pass through; by default none may arrive."""
        return refuse_partial(f"tf.{call.op}", call.args, call.span)

    def storage(self, call: Call) -> str:
        """Where results live: with the operands, with the nearest where they differ."""
        found = [a.storage for a in call.args if a is not None and a.storage != IMMEDIATE]
        return found[0] if len(set(found)) == 1 else call.context.nearest(found)

    def number_dtype(self, args: Sequence[TensorType | None]) -> DType | None:
        """The dtype that a Python number among the operands takes."""
        return next((a.dtype for a in args if a is not None), None)

    def infer(self, call: Call) -> Type:
        """The result type: shape and dtype by the rule, distribution by the relation."""
        results = self.results(call)
        shapes = tuple(r.shape for r in results)
        relation = self.relation(call, shapes)
        partial = self.partial(call)
        layouts = distribute(f"tf.{call.op}", relation, call.args, shapes, partial, call.span)
        storage = self.storage(call)
        types = tuple(
            TensorType(r.shape, r.dtype, layout, storage)
            for r, layout in zip(results, layouts, strict=True)
        )
        return types[0] if len(types) == 1 and not self.is_tuple(call) else TupleType(types)

    def is_tuple(self, call: Call) -> bool:
        """Whether the call gives a tuple even for one result (``split``)."""
        return False


def seen(type: TensorType, mesh: Mesh) -> TensorType:
    """``type`` as the units of ``mesh`` see it: a split over an axis that is no longer in
    force only says who wrote what, so it is dropped."""
    if type.layout is None or all(a is None or a in mesh.axes for a in type.layout.axes):
        return type
    axes = tuple(a if a in mesh.axes else None for a in type.layout.axes)
    layout = replace(type.layout, axes=axes)
    return type.with_(layout=None if layout.is_plain else layout)


def operands(node: Node) -> list[Node | None]:
    """A node's operands by position, None for an optional one left out."""
    rest = iter(node.args)
    given = node.attrs.get("given")
    if not isinstance(given, tuple):
        return list(node.args)
    return [next(rest) if present else None for present in given]


def call_of(node: Node, context: Context) -> Call:
    """The call that made ``node``, operand types as its units saw them."""
    types = tuple(None if n is None else seen(n.tensor, node.mesh) for n in operands(node))
    given = tuple(operands(node))
    return Call(node.op.name, types, node.attrs, node.span, node.mesh, context, given)


_FLOAT64: ContextVar[bool] = ContextVar("float64", default=False)


@contextmanager
def in_float64() -> Iterator[None]:
    """Evaluate with every float held in float64: no rounding to the program's own types."""
    token = _FLOAT64.set(True)
    try:
        yield
    finally:
        _FLOAT64.reset(token)


def torch_dtype(dtype: DType) -> Any:
    """The torch dtype that holds ``dtype``; refuses one that torch has not."""
    import torch

    if _FLOAT64.get() and dtype.is_float:
        return torch.float64
    if dtype.torch is None or not hasattr(torch, dtype.torch):
        refuse("dtype-not-evaluated", None, dtype=dtype, torch=torch.__version__)
    return getattr(torch, dtype.torch)
