"""where: out[i] = input[i] if condition[i] else other[i]; exact after promotion.

Only the chosen side reaches the result: a NaN or an infinity of the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._elementwise import Elementwise, broadcast, common, promoted, tensors
from tilefoundry.ops.base import Call, Example, Result, Shape, Work, work
from tilefoundry.ops.propagate import Partial, partial_summed, refuse_partial
from tilefoundry.ops.signature import Operand


class Where(Elementwise):
    params = (
        Operand("condition"),
        Operand("input", number=True),
        Operand("other", number=True),
    )

    def number_dtype(self, args: Sequence[TensorType | None]) -> DType | None:
        """A number takes the dtype of the other choice, never the condition's."""
        return super().number_dtype(args[1:])

    def results(self, call: Call) -> tuple[Result, ...]:
        condition, a, b = tensors(call)
        if condition.dtype.kind != "bool":
            call.refuse("op-dtype", dtype=condition.dtype, wants="bool")
        shape = broadcast(call, [condition.shape, a.shape, b.shape])
        return (Result(shape, promoted(call, [a.dtype, b.dtype])),)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        """Choosing between two partial sums is linear; the condition must be whole."""
        if call.arg(0).partial:
            return refuse_partial("tf.where", call.args[:1], call.span)
        return partial_summed("tf.where", (None, *call.args[1:]), call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        return torch.where(args[0], *common(args[1:]))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        # one select per element
        dtype = promoted(call, [call.arg(1).dtype, call.arg(2).dtype])
        return work(dtype, **{"float" if dtype.is_float else "int": product(shapes[0])})


def _case(dtype: str, *shapes: tuple[int, ...]) -> Example:
    return Example(((shapes[0], "bool"), (shapes[1], dtype), (shapes[2], dtype)))


OP = Where(
    "where",
    "where",
    examples=(
        *(_case(d, (4, 8), (4, 8), (4, 8)) for d in ("f32", "f16", "bf16", "i32", "fp8e4m3")),
        _case("f32", (4, 8), (4, 8), ()),
        _case("bf16", (4, 1), (8,), (1, 8)),
        Example((((4, 8), "bool"), ((4, 8), "bf16"), ((8,), "f32"))),
    ),
)
