"""What elementwise operations share: broadcasting, promotion, distribution, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.dtype import BOOL, DType, promote
from tilefoundry.ir.expr import Dim, bounds, product
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import Type
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_moved, partial_scaled, partial_summed
from tilefoundry.ops.signature import Operand


def broadcast(call: Call, shapes: Sequence[Shape]) -> Shape:
    """torch's broadcast of ``shapes``; refuses axes that differ and are not 1."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for n in range(rank):
        extent: Dim = 1
        for shape in shapes:
            at = n - (rank - len(shape))
            if at < 0 or shape[at] == 1 or shape[at] == extent:
                continue
            if extent != 1:
                call.refuse(
                    "op-broadcast",
                    shapes=" and ".join(shape_text(s) for s in shapes),
                    axis=n - rank,
                    a=extent,
                    b=shape[at],
                )
            extent = shape[at]
        out.append(extent)
    return tuple(out)


def promoted(call: Call, dtypes: Sequence[DType]) -> DType:
    """torch's promotion over all operands; refuses pairs that have none."""
    out = dtypes[0]
    for dtype in dtypes[1:]:
        joined = promote(out, dtype)
        if joined is None:
            call.refuse("op-promotion", a=out, b=dtype)
        else:
            out = joined
    return out


def demand(call: Call, dtype: DType, kinds: Sequence[str], narrow: bool = False) -> None:
    """Refuse an element type the operation does not compute in."""
    if dtype.kind not in kinds or (dtype.is_narrow and not narrow):
        wants = " ".join(kinds)
        call.refuse("op-dtype", dtype=dtype, wants=wants)


def tensors(call: Call) -> list[Any]:
    return [a for a in call.args if a is not None]


FLOATS = ("f32", "f16", "bf16", "f64")


def over(
    *dtypes: str, shapes: Sequence[tuple[int, ...]] = ((4, 8),), values: Any = "any", **attrs: Any
) -> tuple[Example, ...]:
    """One example per dtype, all operands of that dtype."""
    return tuple(Example(tuple((s, d) for s in shapes), attrs, values) for d in dtypes)


def common(args: Sequence[Any]) -> list[Any]:
    """Tensors of one dtype: torch's promotion by dtypes alone, rank 0 included."""
    import torch

    wide = args[0].dtype
    for arg in args[1:]:
        wide = torch.promote_types(wide, arg.dtype)
    return [a.to(wide) for a in args]


class Elementwise(Op):
    """One result element per element of the broadcast operands.

    ``torch``: the function that evaluates it, a dotted name under ``torch``; ``kinds``:
    dtype kinds it computes in; ``flops`` and ``special``: operations per element;
    ``linear``: how partial sums pass (``none``, ``sum``, ``scale``, ``moved``); ``bits``: as
    :class:`Bits`, ``WHOLE`` where torch's vector code and its scalar code differ.
    """

    kinds: tuple[str, ...] = ("float", "int", "uint")
    flops: int = 1
    special: int = 0
    linear: str = "none"
    compares = False

    def __init__(
        self,
        name: str,
        torch: str,
        *,
        kinds: Sequence[str] | None = None,
        flops: int = 1,
        special: int = 0,
        linear: str = "none",
        compares: bool = False,
        bits: Bits = Bits.ELEMENTS,
        examples: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.torch = torch
        self.kinds = tuple(kinds) if kinds is not None else self.kinds
        self.flops, self.special, self.linear = flops, special, linear
        self.compares = compares
        self.bits = bits
        self.examples = tuple(examples)

    def results(self, call: Call) -> tuple[Result, ...]:
        args = tensors(call)
        dtype = promoted(call, [a.dtype for a in args])
        demand(call, dtype, self.kinds)
        shape = broadcast(call, [a.shape for a in args])
        return (Result(shape, BOOL if self.compares else dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return elementwise(shapes[0], [() if a is None else a.shape for a in call.args])

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        function, given = attrgetter(self.torch)(torch), common(args)
        if given[0].dtype not in (torch.float16, torch.bfloat16) or self.compares:
            return function(*given)
        # torch's own 16-bit kernels round in between where their vector code has no path
        return function(*(a.float() for a in given)).to(given[0].dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n = product(shapes[0])
        dtype = promoted(call, [a.dtype for a in tensors(call)])
        kind = "float" if dtype.is_float else "int"
        return work(dtype, **{kind: n * self.flops, "special": n * self.special})

    def partial(self, call: Call) -> tuple[Partial, ...]:
        if self.linear == "sum":
            return partial_summed(f"tf.{call.op}", call.args, call.span)
        if self.linear == "scale":
            return partial_scaled(f"tf.{call.op}", call.args, call.span)
        if self.linear == "moved":
            return partial_moved(call.args)
        return super().partial(call)


class Unary(Elementwise):
    """``out[i] = f(x[i])``."""

    params = (Operand("x"),)


class Binary(Elementwise):
    """``out[i] = f(lhs[i], rhs[i])``."""

    params = (Operand("lhs", number=True), Operand("rhs", number=True))


def extent_known(extent: Dim) -> bool:
    """The extent is one integer."""
    lo, hi = bounds(extent)
    return lo == hi
