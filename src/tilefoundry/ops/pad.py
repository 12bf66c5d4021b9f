"""pad: out[i] = x[i - before] inside x, value outside (torch.nn.functional.pad's order).

Moves bits; ``value`` is rounded once to x's dtype. ``pads`` are pairs (before, after),
the last axis's pair first; axes without a pair keep their extent. Partial sums pass
where the value is 0, partial maxima and minima always. A split of a padded axis stays
where both pads are multiples of its period (inner · units).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim, bounds
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import (
    as_bits,
    demand_value,
    infer_carrying,
    partial_filled,
    same_digits,
    value_bits,
)
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, integers, scalar


class Pad(Op):
    name = "pad"
    params = (Operand("x"), Attr("pads", integers), Attr("value", scalar, 0))
    examples = (
        Example((((2, 3), "f32"),), {"pads": (1, 2), "value": 0.5}),
        Example((((2, 3), "bf16"),), {"pads": (1, 0, 0, 2), "value": -1.0}),
        Example((((2, 3), "fp8e4m3"),), {"pads": (0, 1), "value": 2.0}),
        Example((((0, 3), "i32"),), {"pads": (0, 0, 2, 1), "value": 7}),
        Example((((3,), "bool"),), {"pads": (1, 1), "value": True}),
        Example((((2, 2), "f16"),), {"pads": ()}),
    )

    def pairs(self, call: Call) -> tuple[tuple[Dim, Dim], ...]:
        """(before, after) of each axis, the first axis first; refuses what is no padding."""
        pads, rank = call.attrs["pads"], call.arg(0).rank
        if len(pads) % 2 or len(pads) > 2 * rank or any(bounds(p)[0] < 0 for p in pads):
            call.refuse("pad-amounts", pads=pads, rank=rank, most=2 * rank)
        given = [(pads[n], pads[n + 1]) for n in range(0, len(pads), 2)]
        return ((0, 0),) * (rank - len(given)) + tuple(reversed(given))

    def results(self, call: Call) -> tuple[Result, ...]:
        x = call.arg(0)
        demand_value(call, "value", x.dtype)
        pairs = self.pairs(call)
        shape = tuple(e + lo + hi for e, (lo, hi) in zip(x.shape, pairs, strict=True))
        return (Result(shape, x.dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        dims = domain((f"i{n}", e, False) for n, e in enumerate(shapes[0]))
        here = tuple(d.var.expr() for d in dims)
        read = tuple(c - lo for c, (lo, _) in zip(here, self.pairs(call), strict=True))
        return AccessRelation(dims, (read,), (here,))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_filled("tf.pad", call.arg(0), call.attrs["value"], call.span)

    def infer(self, call: Call) -> Type:
        x, pairs = call.arg(0), self.pairs(call)
        carried = {}
        for axis, pair in enumerate(pairs):
            carried |= same_digits([x], axis, pair) if pair != (0, 0) else {}
        return infer_carrying(self, call, carried)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        (x,) = args
        assert isinstance(result, TensorType)
        bits = as_bits(x)
        out = bits.new_full(result.shape, value_bits(attrs["value"], result.dtype))
        pads = attrs["pads"]
        inside = [slice(None)] * x.dim()
        for n in range(0, len(pads), 2):
            axis = x.dim() - 1 - n // 2
            inside[axis] = slice(pads[n], pads[n] + x.shape[axis])
        out[tuple(inside)] = bits
        return out.view(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        return Work()


OP = Pad()
