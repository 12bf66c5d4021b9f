"""argmax: out = the index of the largest element along one axis, which is dropped.

Exact. Equal elements: the lowest index; NaN counts as the largest. i64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import WHOLE, AccessRelation, Coord, domain
from tilefoundry.ir.dtype import I64
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.types import Type
from tilefoundry.ops._axes import axis_of, refuse_empty
from tilefoundry.ops._elementwise import FLOATS, demand, over
from tilefoundry.ops.base import Call, Op, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, constant


class ArgMax(Op):
    name = "argmax"
    params = (Operand("x"), Attr("axis", constant, -1))
    examples = (
        *over(*FLOATS, "i32"),
        *over("i32", "f32", values="small", axis=0),
        *over("f32", shapes=((2, 3, 4),), axis=1),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand(call, x.dtype, ("float", "int", "uint"))
        axis = axis_of(call, x.rank)
        if bounds(x.shape[axis])[1] == 0:
            call.refuse("reduce-empty", kind="argmax", axis=axis)
        return (Result((*x.shape[:axis], *x.shape[axis + 1 :]), I64),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis = axis_of(call, call.arg(0).rank)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here: tuple[Coord, ...] = tuple(d.var.expr() for d in dims)
        return AccessRelation(dims, ((*here[:axis], WHOLE, *here[axis:]),), (here,))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        refuse_empty("tf.argmax", "argmax", args[0], (attrs["axis"],))
        return args[0].argmax(attrs["axis"])

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        dtype = call.arg(0).dtype
        # one comparison per element
        return work(dtype, **{"float" if dtype.is_float else "int": call.arg(0).size})


OP = ArgMax()
