"""local: the part of x that the executing unit holds, as a value of its own.

Its shape is the local shape; it differs from unit to unit on the axes x is split on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import WHOLE, AccessRelation, elementwise
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Operand


class Local(Op):
    name = "local"
    params = (Operand("x"),)
    examples = (Example((((4, 8), "f32"),)),)

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        return (Result(x.local_shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        x = call.arg(0)
        base = elementwise(shapes[0], (shapes[0],))
        if shapes[0] == x.shape:
            return base
        return AccessRelation(base.domain, (tuple(WHOLE for _ in x.shape),), base.results)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        held = call.arg(0)
        if held.partial:
            call.refuse("local-partial", type=held)
        return ()

    def infer(self, call: Call) -> Type:
        (result,) = self.results(call)
        self.partial(call)
        return TensorType(result.shape, result.dtype, None, call.arg(0).storage)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        """``attrs["parts"]``: per logical axis (mode extents, index per mode or None)."""
        (x,) = args
        modes: list[int] = []
        index: list[Any] = []
        for extents, picks in attrs.get("parts", ()):
            modes += extents
            index += [slice(None) if p is None else p for p in picks]
        assert isinstance(result, TensorType)
        if not modes:
            return x
        return x.reshape(modes)[tuple(index)].reshape(result.shape)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Local()
