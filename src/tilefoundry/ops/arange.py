"""arange: out[i] = start + i · step, of the stated type with one axis.

Computed exactly (float64 for floats) and rounded once. ``start`` and ``step`` may be
index expressions, such as a tile's first element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.dtype import BF16, F32, I32, I64
from tilefoundry.ir.expr import Dim, Expr, bounds, product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import limits
from tilefoundry.ops.base import Call, Example, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.signature import Attr, number, tensor_type
from tilefoundry.ops.zeros import Created


def _value(value: object, op: str, name: str, span: Span | None) -> Dim | float:
    return value if isinstance(value, Expr) else number(value, op, name, span)


class Arange(Created):
    name = "arange"
    params = (Attr("type", tensor_type), Attr("start", _value, 0), Attr("step", _value, 1))
    examples = (
        Example((), {"type": TensorType((8,), I32)}),
        Example((), {"type": TensorType((8,), I64), "start": 5, "step": -2}),
        Example((), {"type": TensorType((8,), F32), "start": 0.5, "step": 0.1}),
        Example((), {"type": TensorType((300,), BF16)}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        made: TensorType = call.attrs["type"]
        if made.rank != 1:
            call.refuse("op-attribute", name="type", wants="a type of one axis", found=made)
        if made.dtype.kind == "bool" or made.dtype.is_narrow:
            call.refuse("op-dtype", dtype=made.dtype, wants="float int uint")
        for name in ("start", "step"):
            value = call.attrs[name]
            if isinstance(value, float) and not made.dtype.is_float and not value.is_integer():
                wants = f"an integer for {made.dtype}"
                call.refuse("op-attribute", name=name, wants=wants, found=value)
        if not made.dtype.is_float:
            self._in_range(call, made)
        return super().results(call)

    def _in_range(self, call: Call, made: TensorType) -> None:
        """Refuse integers whose first or last surely is none of the type's values."""
        first, step = call.attrs["start"], call.attrs["step"]
        lo, hi = limits(made.dtype)
        for name, value in (("start", first), ("step", first + step * (made.shape[0] - 1))):
            least, most = bounds(value) if isinstance(value, (int, Expr)) else (value, value)
            if bounds(made.shape[0])[0] > 0 and (most < lo or least > hi):
                wants = f"one that keeps the elements within {made.dtype}, {lo} to {hi}"
                call.refuse("op-attribute", name=name, wants=wants, found=call.attrs[name])

    def infer(self, call: Call) -> Type:
        self.results(call)
        return super().infer(call)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        wide = torch.float64 if result.dtype.is_float else torch.int64
        index = torch.arange(result.shape[0], dtype=wide)  # type: ignore[arg-type]
        cast = float if result.dtype.is_float else int
        values = cast(attrs["start"]) + index * cast(attrs["step"])
        return values.to(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        dtype = call.attrs["type"].dtype
        # one multiply-add per element
        return work(dtype, **{"float" if dtype.is_float else "int": 2 * product(shapes[0])})


OP = Arange()
