"""insert_slice: out[i] = update[i - offsets] inside the window, dst[i] elsewhere.

The author's functional form of a write: the result is dst, updated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim, bounds
from tilefoundry.ir.mesh import Axis, Coord
from tilefoundry.ir.shard import shape_text
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import refuse_partial
from tilefoundry.ops.signature import Attr, Operand, integers


class InsertSlice(Op):
    name = "insert_slice"
    params = (Operand("dst"), Operand("update"), Attr("offsets", integers))
    examples = (
        Example((((6, 8), "f32"), ((3, 8), "f32")), {"offsets": (2, 0)}),
        Example((((6, 8), "bf16"), ((6, 2), "bf16")), {"offsets": (0, 5)}),
        Example((((6,), "i32"), ((0,), "i32")), {"offsets": (6,)}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        dst, update = call.arg(0), call.arg(1)
        offsets = call.attrs["offsets"]
        if dst.dtype != update.dtype:
            call.refuse("insert-dtype", dst=dst.dtype, update=update.dtype)
        if not dst.rank == update.rank == len(offsets):
            call.refuse("insert-rank", dst=dst, update=update, offsets=len(offsets))
        for n, (extent, size, start) in enumerate(
            zip(dst.shape, update.shape, offsets, strict=True)
        ):
            if bounds(start)[1] < 0 or bounds(start + size - extent)[0] > 0:
                call.refuse("slice-range", axis=n, extent=extent, start=start, size=size, stride=1)
        return (Result(dst.shape, dst.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        """The writes: one point per element of the update."""
        update = call.arg(1)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(update.shape))
        here = tuple(d.var.expr() for d in dims)
        there = tuple(c + o for c, o in zip(here, call.attrs["offsets"], strict=True))
        return AccessRelation(dims, (there, here), (there,))

    def infer(self, call: Call) -> Type:
        self.results(call)
        refuse_partial("tf.insert_slice", call.args, call.span)
        dst, update = call.arg(0), call.arg(1)
        own = own_parts(dst, update, call.attrs["offsets"])
        for digit in dst.digits:
            if digit.axis in own:
                continue
            held = [d for d in update.digits if d.axis == digit.axis]
            same = update.shape[digit.dim] == dst.shape[digit.dim]
            if digit.axis.extent > 1 and not (same and held == [digit]):
                call.refuse(
                    "shard-needs-whole",
                    axis=digit.axis.name,
                    operand=0,
                    type=dst,
                    dim=digit.dim,
                    whole=shape_text(dst.shape),
                )
        split = {d.axis for d in dst.digits}
        for digit in update.digits:
            axis = digit.axis
            alone = not call.context.shared(dst.storage, axis.level)
            if alone and axis not in split and axis.extent > 1:
                # every unit keeps a whole destination and would need the parts of the others
                call.refuse(
                    "shard-needs-whole",
                    axis=axis.name,
                    operand=1,
                    type=update,
                    dim=digit.dim,
                    whole=shape_text(update.shape),
                )
        return dst

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        dst, update = args
        index = window(attrs["offsets"], update.shape, dst.shape)
        out = dst.clone()
        out[index] = update
        return out

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


def own_parts(dst: TensorType, update: TensorType, offsets: Sequence[Dim]) -> frozenset[Axis]:
    """Axes along which each unit writes just the part that it holds of the destination: the
    updates of all units together are one value."""
    out: set[Axis] = set()
    for d in dst.digits:
        alone = sum(other.dim == d.dim for other in dst.digits) == 1
        at = Coord(d.axis.name, 0, d.axis.extent - 1, axis=d.axis).expr() * d.inner
        whole = dst.shape[d.dim] == d.inner * d.axis.extent
        if alone and whole and update.shape[d.dim] == d.inner and offsets[d.dim] == at:
            out.add(d.axis)
    return frozenset(out)


def window(offsets: Any, sizes: Any, extents: Any) -> tuple[slice, ...]:
    """The written range per axis; refuses one that leaves the destination."""
    index: list[slice] = []
    for axis, (start, size, extent) in enumerate(zip(offsets, sizes, extents, strict=True)):
        if start < 0 or start + size > extent:
            refuse(
                "slice-range",
                None,
                op="tf.insert_slice",
                axis=axis,
                extent=extent,
                start=start,
                size=size,
                stride=1,
            )
        index.append(slice(start, start + size))
    return tuple(index)


OP = InsertSlice()
