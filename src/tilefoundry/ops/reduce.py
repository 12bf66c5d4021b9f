"""reduce: out = combine of x over axes (sum, mean, max, min, abs_max, prod, any, all).

Rounding: torch's; 16-bit sums accumulate in float32 and round once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.dtype import BOOL, I64
from tilefoundry.ir.expr import bounds, product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._axes import refuse_empty
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial
from tilefoundry.ops.signature import Attr, Operand, choice, constants, flag

KINDS = ("sum", "mean", "max", "min", "abs_max", "prod", "any", "all")
COMBINES = {"sum": "sum", "mean": None, "max": "max", "min": "min", "abs_max": "max"}
"""How partial results combine; a mean of parts is not the mean."""


class Reduce(Op):
    name = "reduce"
    bits = Bits.ROWS
    params = (
        Operand("x"),
        Attr("axes", constants),
        Attr("keepdim", flag, False),
        Attr("kind", choice(*KINDS), "sum"),
    )
    examples = (
        *(
            Example((((3, 8, 4), "f32"),), {"axes": (-1,), "keepdim": k, "kind": kind})
            for kind in ("sum", "mean", "max", "min", "abs_max")
            for k in (False, True)
        ),
        *(Example((((4, 6), d),), {"axes": (0, 1)}) for d in ("bf16", "f16", "f64", "i32")),
        *(Example((((4, 6), d),), {"axes": 1, "kind": "MEAN"}) for d in ("bf16", "f16")),
        Example((((2, 4, 6), "f32"),), {"axes": (0, -1), "kind": "prod"}, "positive"),
        Example((((4, 6), "i32"),), {"axes": (1,), "kind": "max"}),
        Example((((4, 6), "bf16"),), {"axes": (0,), "kind": "abs_max"}),
        Example((((4, 6), "bool"),), {"axes": (1,), "kind": "any"}),
        Example((((4, 6), "bool"),), {"axes": (-2,), "keepdim": True, "kind": "all"}),
        Example((((4, 0), "f32"),), {"axes": (1,)}),
        *(Example((((4, 6), "f32"),), {"axes": (), "kind": kind}) for kind in KINDS[:5]),
        Example((((4, 6), "i32"),), {"axes": (), "kind": "prod"}, "small"),
    )

    def axes(self, call: Call) -> tuple[int, ...]:
        """Reduced axes, not negative, sorted; refuses one out of range or twice."""
        rank = call.arg(0).rank
        out: list[int] = []
        for axis in call.attrs["axes"]:
            real = axis + rank if axis < 0 else axis
            if not 0 <= real < rank or real in out:
                call.refuse("op-axis", axis=axis, rank=rank)
            out.append(real)
        return tuple(sorted(out))

    def results(self, call: Call) -> tuple[Result, ...]:
        x, axes, keep = call.arg(0), self.axes(call), call.attrs["keepdim"]
        kind = call.attrs["kind"]
        if kind in ("any", "all"):
            dtype = BOOL
        elif kind in ("sum", "prod") and not x.dtype.is_float:
            dtype = I64
        elif (kind == "mean" and not x.dtype.is_float) or x.dtype.is_narrow:
            call.refuse("op-dtype", dtype=x.dtype, wants="float")
        else:
            dtype = x.dtype
        if kind in ("max", "min", "abs_max"):
            for axis in axes:
                if bounds(x.shape[axis])[1] == 0:
                    call.refuse("reduce-empty", kind=kind, axis=axis)
        shape = tuple(1 if n in axes else e for n, e in enumerate(x.shape) if keep or n not in axes)
        return (Result(shape, dtype),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        x, axes = call.arg(0), self.axes(call)
        dims = domain((f"i{n}", e, n in axes) for n, e in enumerate(x.shape))
        here = tuple(d.var.expr() for d in dims)
        keep = call.attrs["keepdim"]
        out = tuple(0 if n in axes else c for n, c in enumerate(here) if keep or n not in axes)
        return AccessRelation(dims, (here,), (out,), COMBINES.get(call.attrs["kind"]))

    def partial(self, call: Call) -> tuple[Partial, ...]:
        held = call.arg(0).partial
        # the largest magnitude of a maximum is not found from its terms' magnitudes
        kind = None if call.attrs["kind"] == "abs_max" else COMBINES.get(call.attrs["kind"])
        return held if all(k == kind for _, k in held) else super().partial(call)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        axes, keep, kind = tuple(attrs["axes"]), attrs["keepdim"], attrs["kind"]
        if not axes:  # torch would take all of them; one element is its own combination
            assert isinstance(result, TensorType)
            return (x.abs() if kind == "abs_max" else x).to(torch_dtype(result.dtype))
        if kind in ("sum", "mean"):
            return getattr(torch, kind)(x, dim=axes, keepdim=keep)
        if kind in ("max", "min", "abs_max"):
            refuse_empty("tf.reduce", kind, x, axes)
            pick = torch.amin if kind == "min" else torch.amax
            return pick(x.abs() if kind == "abs_max" else x, dim=axes, keepdim=keep)
        real = sorted((a % x.dim() for a in axes), reverse=True)
        for axis in real:  # torch reduces these over one axis at a time
            x = getattr(torch, kind)(x, dim=axis, keepdim=keep)
        return x

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        x = call.arg(0)
        kind = "float" if x.dtype.is_float else "int"
        per = 2 if call.attrs["kind"] == "abs_max" else 1
        extra = product(shapes[0]) if call.attrs["kind"] == "mean" else 0
        assert isinstance(x, TensorType)
        return work(x.dtype, **{kind: x.size * per + extra})


OP = Reduce()
