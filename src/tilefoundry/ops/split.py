"""split: out_n[..., i, ...] = x[..., start_n + i, ...] along axis, a tuple of parts.

Moves bits; nothing is rounded. ``num_splits`` is a count of equal parts, which must
divide the extent, or the sequence of part sizes, which must add up to it. A split of
``axis`` over units stays where every part is a multiple of its period (inner · units).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim, bounds
from tilefoundry.ir.types import Type
from tilefoundry.ops._movement import axis_of, exact, infer_carrying, same_digits
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial, partial_moved
from tilefoundry.ops.signature import Attr, Operand, constant, integers


def count_or_sizes(value: object, op: str, name: str, span: Span | None) -> int | tuple[Dim, ...]:
    """A number of parts, or the size of each."""
    if isinstance(value, (tuple, list)):
        return integers(value, op, name, span)  # pyright: ignore[reportUnknownArgumentType]
    return constant(value, op, name, span)


class Split(Op):
    name = "split"
    params = (Operand("x"), Attr("num_splits", count_or_sizes), Attr("axis", constant, 0))
    examples = (
        Example((((6, 4), "f32"),), {"num_splits": 3, "axis": 0}),
        Example((((2, 8), "bf16"),), {"num_splits": (2, 1, 5), "axis": -1}),
        Example((((2, 8), "fp8e4m3"),), {"num_splits": 2, "axis": 1}),
        Example((((4,), "i32"),), {"num_splits": 1, "axis": 0}),
        Example((((4, 2), "bool"),), {"num_splits": (0, 4), "axis": 0}),
    )

    def sizes(self, call: Call) -> tuple[int, tuple[Dim, ...]]:
        """The axis and the extent of each part; refuses parts that are not the whole."""
        x, given = call.arg(0), call.attrs["num_splits"]
        axis = axis_of(call, call.attrs["axis"], x.rank)
        extent = x.shape[axis]
        if isinstance(given, int):
            part = exact(extent, given) if given > 0 else None
            sizes = () if part is None else (part,) * given
        else:
            sizes = given
        if not sizes or sum(sizes) != extent or any(bounds(s)[0] < 0 for s in sizes):
            call.refuse("split-sizes", given=given, extent=extent, axis=axis)
        return axis, sizes

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        axis, sizes = self.sizes(call)
        lead, tail = x.shape[:axis], x.shape[axis + 1 :]
        return tuple(Result((*lead, size, *tail), x.dtype) for size in sizes)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        axis, sizes = self.sizes(call)
        dims = domain((f"i{n}", e, False) for n, e in enumerate(call.arg(0).shape))
        here = tuple(d.var.expr() for d in dims)
        starts = accumulate(sizes[:-1], initial=0)
        writes = tuple((*here[:axis], here[axis] - s, *here[axis + 1 :]) for s in starts)
        return AccessRelation(dims, (here,), writes)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_moved(call.args)

    def infer(self, call: Call) -> Type:
        axis, sizes = self.sizes(call)
        return infer_carrying(self, call, same_digits([call.arg(0)], axis, sizes))

    def is_tuple(self, call: Call) -> bool:
        return True

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        (x,) = args
        given, axis = attrs["num_splits"], attrs["axis"]
        extent = x.shape[axis]
        sizes = [extent // given] * given if isinstance(given, int) else list(given)
        return tuple(x.split_with_sizes(sizes, dim=axis))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Split()
