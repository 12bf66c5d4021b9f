"""cast: out[i] = x[i] in another dtype.

Rounding: to the nearest, halves to even, for floats; floats become integers towards 0
(out of range and NaN: not specified); a number becomes a bool by being different
from 0; integers wrap modulo 2^bits. Overflow of a float is infinity, or the largest fp8e4m3,
which has no infinity, as in torch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, elementwise
from tilefoundry.ir.dtype import LARGEST, DType
from tilefoundry.ir.expr import product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial, partial_scaled
from tilefoundry.ops.signature import Attr, Operand, dtype

# bits of the exponent and of the mantissa: a wider float has no fewer of either
_FIELDS = {
    "f64": (11, 52),
    "f32": (8, 23),
    "f16": (5, 10),
    "bf16": (8, 7),
    "fp8e4m3": (4, 3),
    "fp8e5m2": (5, 2),
    "f4e2m1": (2, 1),
    "f8e8m0": (8, 0),
}


def widens(a: DType, b: DType) -> bool:
    """Every value of float ``a`` is a value of float ``b``."""
    if not (a.is_float and b.is_float):
        return a is b
    return all(x <= y for x, y in zip(_FIELDS[a.name], _FIELDS[b.name], strict=True))


class Cast(Op):
    name = "cast"
    params = (Operand("x"), Attr("dtype", dtype))
    examples = (
        *(
            Example((((4, 8), a),), {"dtype": b})
            for a, b in (
                ("f32", "f16"),
                ("f32", "bf16"),
                ("bf16", "f32"),
                ("f16", "f64"),
                ("f64", "bf16"),
                ("f32", "fp8e4m3"),
                ("bf16", "fp8e5m2"),
                ("fp8e4m3", "f16"),
                ("fp8e5m2", "f32"),
                ("f32", "i32"),
                ("i32", "f16"),
                ("i64", "i32"),
                ("f32", "f32"),
            )
        ),
        Example((((4, 8), "i32"),), {"dtype": "bool"}, "small"),
        Example((((4, 8), "bool"),), {"dtype": "bf16"}),
    )

    def results(self, call: Call) -> tuple[Result, ...]:
        return (Result(call.arg(0).shape, call.attrs["dtype"]),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        return elementwise(shapes[0], [call.arg(0).shape])

    def partial(self, call: Call) -> tuple[Partial, ...]:
        """Terms of a sum may be widened, which is exact; rounding each is another value."""
        x = call.arg(0)
        if x.partial and widens(x.dtype, call.attrs["dtype"]):
            return partial_scaled("tf.cast", call.args, call.span)
        return super().partial(call)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        assert isinstance(result, TensorType)
        x = args[0]
        if result.dtype.name == "fp8e4m3" and x.dtype != torch_dtype(result.dtype):
            # some versions of torch make NaN of what is too large; 8 bits have no clamp there
            most = LARGEST[result.dtype.name]
            x = (x if x.is_floating_point() and x.itemsize > 1 else x.float()).clamp(-most, most)
        return x.to(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        x, to = call.arg(0).dtype, call.attrs["dtype"]
        if x == to:
            return Work()
        # one conversion per element, on the units of the wider float among the two
        floats = [d for d in (x, to) if d.is_float]
        wide = max(floats or [x, to], key=lambda d: d.bits)
        return work(wide, **{"float" if floats else "int": product(shapes[0])})


OP = Cast()
