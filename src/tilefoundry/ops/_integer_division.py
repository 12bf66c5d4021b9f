"""What floor_div and mod share: integers refuse a zero divisor, division costs two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import Type
from tilefoundry.ops._elementwise import Binary, promoted, tensors
from tilefoundry.ops.base import Call, Shape, Work, work


class Floored(Binary):
    """Division that rounds the quotient down, as Python's ``//`` and ``%`` do."""

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        if not args[1].is_floating_point() and (args[1] == 0).any():
            refuse("divide-by-zero", None, op=f"tf.{self.name}")
        return super().evaluate(args, attrs, result)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n = product(shapes[0])
        dtype = promoted(call, [a.dtype for a in tensors(call)])
        if dtype.is_float:
            # reciprocal; multiply, floor, multiply back and subtract
            return work(dtype, special=n, float=3 * n)
        return work(dtype, int=2 * n)  # quotient, correction by the sign
