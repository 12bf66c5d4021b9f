"""stack: out[..., n, ...] = inputs[n][..., ...]: equal shapes joined along a new axis.

Moves bits; operands of other dtypes are first converted to torch's promoted dtype,
each element rounded once. ``axis`` is the new axis's place in the result, negative
ones counted from the result's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._elementwise import promoted, tensors
from tilefoundry.ops._movement import as_bits, axis_of, conversions, partial_alike
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, constant


class Stack(Op):
    name = "stack"
    params = (Operand("inputs", many=True), Attr("axis", constant, 0))
    examples = (
        Example((((2, 4), "f32"), ((2, 4), "f32"), ((2, 4), "f32")), {"axis": 0}),
        Example((((2, 4), "bf16"), ((2, 4), "bf16")), {"axis": -1}),
        Example((((2, 4), "fp8e5m2"), ((2, 4), "fp8e5m2")), {"axis": 1}),
        Example((((), "i32"), ((), "i32")), {"axis": 0}),
        Example((((0, 4), "f16"), ((0, 4), "f32")), {"axis": -2}),
    )

    def axis(self, call: Call) -> int:
        return axis_of(call, call.attrs["axis"], call.arg(0).rank + 1)

    def results(self, call: Call) -> tuple[Result, ...]:
        args = tensors(call)
        if not args:
            problem = "no tensor is given"
            call.refuse("op-arguments", takes="(*inputs, axis=0)", problem=problem)
        axis = self.axis(call)
        for n, arg in enumerate(args):
            if arg.shape != args[0].shape:
                call.refuse("join-shapes", n=n, first=args[0], other=arg, axis=axis)
        shape = (*args[0].shape[:axis], len(args), *args[0].shape[axis:])
        return (Result(shape, promoted(call, [a.dtype for a in args])),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis = self.axis(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        read = here[:axis] + here[axis + 1 :]
        return AccessRelation(dims, (read,) * len(call.args), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_alike("tf.stack", call.args, call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        dtype = torch_dtype(result.dtype)
        return torch.stack([as_bits(a.to(dtype)) for a in args], dim=attrs["axis"]).view(dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        args = tensors(call)
        return conversions(call, args, promoted(call, [a.dtype for a in args]))


OP = Stack()
