"""concat: out[.., i, ..] = inputs[n][.., i - start_n, ..] for 0 <= i - start_n < extent_n on axis.

Moves bits; operands of other dtypes are first converted to torch's promoted dtype,
each element rounded once. Extents agree on all other axes; an operand may be empty
along ``axis``. A split of ``axis`` stays where all operands share it and every extent
is a multiple of its period (inner · units), so that each unit joins its own parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._elementwise import promoted, tensors
from tilefoundry.ops._movement import (
    as_bits,
    axis_of,
    conversions,
    infer_carrying,
    partial_alike,
    same_digits,
)
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, constant


class Concat(Op):
    name = "concat"
    params = (Operand("inputs", many=True), Attr("axis", constant, 0))
    examples = (
        Example((((2, 4), "f32"), ((3, 4), "f32")), {"axis": 0}),
        Example((((2, 3), "bf16"), ((2, 1), "bf16"), ((2, 4), "bf16")), {"axis": -1}),
        Example((((2, 4), "fp8e4m3"), ((2, 4), "fp8e4m3")), {"axis": 1}),
        Example((((0, 4), "i64"), ((3, 4), "i64")), {"axis": 0}),
        Example((((2, 4), "f16"), ((2, 4), "f32")), {"axis": 0}),
        Example((((4,), "bool"),), {"axis": 0}),
    )

    def axis(self, call: Call) -> int:
        return axis_of(call, call.attrs["axis"], call.arg(0).rank)

    def results(self, call: Call) -> tuple[Result, ...]:
        args = tensors(call)
        if not args:
            problem = "no tensor is given"
            call.refuse("op-arguments", takes="(*inputs, axis=0)", problem=problem)
        axis = self.axis(call)
        total: Dim = 0
        for n, arg in enumerate(args):
            rest = arg.shape[:axis] + arg.shape[axis + 1 :]
            if rest != args[0].shape[:axis] + args[0].shape[axis + 1 :] or arg.rank != args[0].rank:
                call.refuse("join-shapes", n=n, first=args[0], other=arg, axis=axis)
            total = total + arg.shape[axis]
        shape = (*args[0].shape[:axis], total, *args[0].shape[axis + 1 :])
        return (Result(shape, promoted(call, [a.dtype for a in args])),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis = self.axis(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        reads: list[tuple[Dim, ...]] = []
        start: Dim = 0
        for arg in tensors(call):
            reads.append((*here[:axis], here[axis] - start, *here[axis + 1 :]))
            start = start + arg.shape[axis]
        return AccessRelation(dims, tuple(reads), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_alike("tf.concat", call.args, call.span)

    def infer(self, call: Call) -> Type:
        self.results(call)
        args, axis = tensors(call), self.axis(call)
        return infer_carrying(self, call, same_digits(args, axis, [a.shape[axis] for a in args]))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        dtype = torch_dtype(result.dtype)
        return torch.cat([as_bits(a.to(dtype)) for a in args], dim=attrs["axis"]).view(dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        args = tensors(call)
        return conversions(call, args, promoted(call, [a.dtype for a in args]))


OP = Concat()
