"""reshard: out[i] = x[i]; changes who holds what, the layout or the storage.

The logical value and shape stay. A partial value is completed (its terms are combined)
unless the new layout states it partial on the same axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.expr import product
from tilefoundry.ir.spec import axes_outside, layout_from
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, work
from tilefoundry.ops.signature import Attr, Operand, text


def layout_or_none(value: object, op: str, name: str, span: Span | None) -> object:
    return None if value is None else layout_from(value, span)


def storage_or_none(value: object, op: str, name: str, span: Span | None) -> str | None:
    return None if value is None else text(value, op, name, span)


class Reshard(Op):
    name = "reshard"
    params = (
        Operand("x"),
        Attr("layout", layout_or_none, None),
        Attr("storage", storage_or_none, None),
    )
    examples = (Example((((4, 8), "f32"),)), Example((((4, 8), "bf16"),)))

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        return (Result(x.shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return elementwise(shapes[0], (call.arg(0).shape,))

    def infer(self, call: Call) -> Type:
        x, layout = call.arg(0), call.attrs["layout"]
        storage = call.attrs["storage"] or x.storage
        if storage not in call.context.storages:
            call.refuse("storage-unknown", storage=storage, known=" ".join(call.context.storages))
        if layout is not None:
            layout.groups(x.shape, call.span)
            for axis in axes_outside(layout, call.mesh):
                call.refuse("axis-not-in-force", axis=axis.name, level=axis.level, mesh=call.mesh)
            for axis, kind in layout.partial:
                if (axis, kind) not in x.partial:
                    call.refuse("partial-invented", axis=axis.name, kind=kind, type=x)
            if layout.is_plain:
                layout = None
        return TensorType(x.shape, x.dtype, layout, storage)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        return args[0]

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        x = call.arg(0)
        dropped = {p for p in x.partial} - set((call.attrs["layout"] or _none).partial)
        terms = product(axis.extent for axis, _ in dropped) - 1
        return work(x.dtype, float=product(shapes[0]) * terms)


class _NoPartial:
    partial: tuple[Any, ...] = ()


_none = _NoPartial()
OP = Reshard()
