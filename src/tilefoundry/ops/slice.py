"""slice: out[i] = x[starts + i · strides], sizes giving the extents. Written x[a:b, k]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.access import AccessRelation, Coord, domain
from tilefoundry.ir.expr import bounds
from tilefoundry.ir.types import Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial, partial_moved
from tilefoundry.ops.signature import Attr, Operand, integers


class Slice(Op):
    name = "slice"
    params = (
        Operand("x"),
        Attr("starts", integers),
        Attr("sizes", integers),
        Attr("strides", integers, ()),
    )
    examples = (
        Example((((6, 8), "f32"),), {"starts": (1, 0), "sizes": (3, 8)}),
        Example((((6, 8), "bf16"),), {"starts": (0, 2), "sizes": (6, 3), "strides": (1, 2)}),
        Example((((6, 8), "i32"),), {"starts": (0, 0), "sizes": (0, 8)}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        starts, sizes, strides = self._parts(call)
        for n, extent in enumerate(x.shape):
            last = starts[n] + (sizes[n] - 1) * strides[n]
            empty = bounds(sizes[n])[1] == 0
            outside = bounds(starts[n])[1] < 0 or bounds(last - extent)[0] >= 0
            if bounds(sizes[n])[1] < 0 or bounds(strides[n])[0] < 1 or (outside and not empty):
                call.refuse(
                    "slice-range",
                    axis=n,
                    extent=extent,
                    start=starts[n],
                    size=sizes[n],
                    stride=strides[n],
                )
        return (Result(sizes, x.dtype),)

    def _parts(self, call: Call) -> tuple[Shape, Shape, Shape]:
        x = call.arg(0)
        starts, sizes = call.attrs["starts"], call.attrs["sizes"]
        strides = call.attrs["strides"] or (1,) * len(sizes)
        if not len(starts) == len(sizes) == len(strides) == x.rank:
            call.refuse("slice-rank", given=len(sizes), rank=x.rank, type=x)
        return starts, sizes, strides

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        starts, _, strides = self._parts(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here: tuple[Coord, ...] = tuple(d.var.expr() for d in dims)
        reads = tuple(
            start + d.var.expr() * stride
            for d, start, stride in zip(dims, starts, strides, strict=True)
        )
        return AccessRelation(dims, (reads,), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_moved(call.args)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        (x,) = args
        strides = attrs["strides"] or (1,) * x.dim()
        index: list[slice] = []
        parts = zip(attrs["starts"], attrs["sizes"], strides, x.shape, strict=True)
        for axis, (start, size, stride, extent) in enumerate(parts):
            stop = start + (size - 1) * stride + 1 if size else start
            if size < 0 or start < 0 or (size and stop > extent):
                refuse(
                    "slice-range",
                    None,
                    op="tf.slice",
                    axis=axis,
                    extent=extent,
                    start=start,
                    size=size,
                    stride=stride,
                )
            index.append(slice(start, max(stop, start), stride))
        return x[tuple(index)]

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Slice()
