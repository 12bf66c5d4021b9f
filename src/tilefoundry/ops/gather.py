"""gather: out[i] = x[i with i_axis replaced by index[i]], one index per result element.

Moves bits; nothing is rounded. ``index`` has x's rank and, but for ``axis``, extents
not above x's. An index outside 0 .. extent - 1 is refused at evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, Coord, Indirect, domain
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import as_bits, axis_of, checked_index, demand_index
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial, partial_moved, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, constant


class Gather(Op):
    name = "gather"
    params = (Operand("x"), Operand("index"), Attr("axis", constant))
    examples = (
        Example((((5, 4), "f32"), ((3, 4), "i64")), {"axis": 0}, ("any", "index")),
        Example((((3, 5), "bf16"), ((3, 2), "i32")), {"axis": -1}, ("any", "index")),
        Example((((3, 5), "fp8e5m2"), ((2, 2), "i64")), {"axis": 1}, ("any", "index")),
        Example((((3, 5), "bool"), ((0, 2), "i64")), {"axis": 1}, ("any", "index")),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x, index = call.arg(0), demand_index(call, 1)
        axis = axis_of(call, call.attrs["axis"], x.rank)
        if index.rank != x.rank or any(
            n != axis and bounds(have - want)[0] < 0
            for n, (have, want) in enumerate(zip(x.shape, index.shape, strict=False))
        ):
            wants = f"an index of rank {x.rank} whose extents fit {x} but for axis {axis}"
            call.refuse("index-shapes", wants=wants, found=index)
        return (Result(index.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis = call.attrs["axis"] % call.arg(0).rank
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        read: tuple[Coord, ...] = (*here[:axis], Indirect(1), *here[axis + 1 :])
        return AccessRelation(dims, (read, here), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        refuse_partial("tf.gather", (None, call.args[1]), call.span)
        return partial_moved(call.args[:1])

    def storage(self, call: Call) -> str:
        """With x: the index only says which part."""
        return call.arg(0).storage

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        x, index = args
        assert isinstance(result, TensorType)
        axis = attrs["axis"] % x.dim()
        at = checked_index(self.name, index, x.shape[axis], axis)
        return as_bits(x).gather(axis, at).view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Gather()
