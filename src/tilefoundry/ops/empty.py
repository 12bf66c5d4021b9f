"""empty: a place to write, nothing in it yet; ``buffers=N`` makes it a ring of N slots.

A ring's slot is (linear iteration count of the enclosing loops) mod N. Evaluation fills
it with a poison (NaN, or the most negative integer) so that a read before a write shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import torch_dtype
from tilefoundry.ops.signature import Attr, constant, tensor_type
from tilefoundry.ops.zeros import Created


def slots(value: object, op: str, name: str, span: Span | None) -> int:
    """A ring has at least one slot."""
    count = constant(value, op, name, span)
    if count < 1:
        from tilefoundry.diag import refuse

        refuse("op-attribute", span, op=op, name=name, wants="at least 1", found=count)
    return count


class Empty(Created):
    name = "empty"
    params = (Attr("type", tensor_type), Attr("buffers", slots, 1))

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        dtype = torch_dtype(result.dtype)
        if dtype is torch.bool:
            return torch.zeros(result.shape, dtype=dtype)  # type: ignore[arg-type]
        if result.dtype.is_float:
            made = torch.full(result.shape, float("nan"), dtype=torch.float32)  # type: ignore[arg-type]
            return made.to(dtype)
        return torch.full(result.shape, torch.iinfo(dtype).min, dtype=dtype)  # type: ignore[arg-type]


OP = Empty()
