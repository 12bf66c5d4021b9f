"""index_copy: out = dst, but out[.., index[j], ..] = src[.., j, ..] along dim for every j.

Moves bits; nothing is rounded. An index outside 0 .. extent - 1 is refused at
evaluation, and so is an index given twice with different values: which of them
stays would depend on the order of writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import as_bits, checked_index, partial_alike
from tilefoundry.ops._update import Update
from tilefoundry.ops.base import Call, Example, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial


class IndexCopy(Update):
    name = "index_copy"
    examples = (
        Example(
            (((5, 4), "f32"), ((1,), "i64"), ((1, 4), "f32")), {"dim": 0}, ("any", "index", "any")
        ),
        Example(
            (((3, 5), "bf16"), ((1,), "i32"), ((3, 1), "bf16")),
            {"dim": -1},
            ("any", "index", "any"),
        ),
        Example(
            (((5, 4), "fp8e4m3"), ((1,), "i64"), ((1, 4), "fp8e4m3")),
            {"dim": 0},
            ("any", "index", "any"),
        ),
        Example(
            (((5, 4), "i32"), ((0,), "i64"), ((0, 4), "i32")), {"dim": 0}, ("any", "index", "any")
        ),
    )

    def partial_values(self, call: Call) -> tuple[Partial, ...]:
        return partial_alike("tf.index_copy", (call.args[0], None, call.args[2]), call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        dst, index, src = args
        assert isinstance(result, TensorType)
        dim = attrs["dim"] % dst.dim()
        at = checked_index(self.name, index, dst.shape[dim], dim)
        bits = as_bits(src)
        out = as_bits(dst).index_copy(dim, at, bits)
        lost = (out.index_select(dim, at) != bits).movedim(dim, 0).unsqueeze(-1).flatten(1).any(1)
        if bool(lost.any()):
            refuse("index-copy-repeats", None, op="tf.index_copy", index=int(at[lost][0]), dim=dim)
        return out.view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = IndexCopy()
