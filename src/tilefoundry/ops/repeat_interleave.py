"""repeat_interleave: out[..., i, ...] = x[..., i // repeats, ...] along axis.

Moves bits; nothing is rounded. ``repeats`` is one integer for all elements. A split
of ``axis`` stays, its blocks ``repeats`` times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.shard import Digit
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import as_bits, axis_of, infer_carrying
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial, partial_moved
from tilefoundry.ops.signature import Attr, Operand, constant, integer


class RepeatInterleave(Op):
    name = "repeat_interleave"
    params = (Operand("x"), Attr("repeats", integer), Attr("axis", constant))
    examples = (
        Example((((2, 3, 4), "f32"),), {"repeats": 4, "axis": 1}),
        Example((((2, 3), "bf16"),), {"repeats": 2, "axis": -1}),
        Example((((2, 3), "fp8e4m3"),), {"repeats": 3, "axis": 0}),
        Example((((0, 3), "i32"),), {"repeats": 2, "axis": 0}),
        Example((((2, 3), "i8"),), {"repeats": 0, "axis": 0}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x, repeats = call.arg(0), call.attrs["repeats"]
        axis = axis_of(call, call.attrs["axis"], x.rank)
        if bounds(repeats)[0] < 0:
            wants = "a count of 0 or more"
            call.refuse("op-attribute", name="repeats", wants=wants, found=repr(repeats))
        shape = (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :])
        return (Result(shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis, repeats = call.attrs["axis"] % call.arg(0).rank, call.attrs["repeats"]
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        from_ = 0 if repeats == 0 else here[axis] // repeats
        return AccessRelation(dims, ((*here[:axis], from_, *here[axis + 1 :]),), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_moved(call.args)

    def infer(self, call: Call) -> Type:
        self.results(call)
        x, repeats = call.arg(0), call.attrs["repeats"]
        axis = call.attrs["axis"] % x.rank
        held = [d for d in x.digits if d.dim == axis and d.axis.extent > 1]
        if bounds(repeats)[0] == 0:
            held = []
        return infer_carrying(self, call, {d: Digit(d.axis, axis, d.inner * repeats) for d in held})

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        assert isinstance(result, TensorType)
        out = as_bits(args[0]).repeat_interleave(attrs["repeats"], dim=attrs["axis"])
        return out.view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = RepeatInterleave()
