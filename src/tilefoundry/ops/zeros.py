"""zeros: every element is 0, of the stated type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.dtype import BF16, F32, I32
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.signature import Attr, tensor_type


class Created(Op):
    """A value made of nothing: its type is written, layout and storage included."""

    def results(self, call: Call) -> tuple[Result, ...]:
        made = call.attrs["type"]
        return (Result(made.shape, made.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return elementwise(shapes[0], ())

    def infer(self, call: Call) -> Type:
        return call.attrs["type"]

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


class Zeros(Created):
    name = "zeros"
    params = (Attr("type", tensor_type),)
    examples = (
        Example((), {"type": TensorType((4, 8), F32)}),
        Example((), {"type": TensorType((0, 8), BF16)}),
        Example((), {"type": TensorType((3,), I32)}),
    )

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        return torch.zeros(result.shape, dtype=torch_dtype(result.dtype))  # type: ignore[arg-type]


OP = Zeros()
