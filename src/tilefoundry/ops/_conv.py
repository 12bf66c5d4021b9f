"""What convolutions share: window arithmetic, groups, evaluation, cost, per number of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.dtype import BF16, F16, F32, F64
from tilefoundry.ir.expr import Dim, bounds, product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._movement import demand_same, exact
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial, partial_scaled, refuse_partial
from tilefoundry.ops.signature import Attr, Operand, constant, constants


class Conv(Op):
    """``out[n, o, l..]`` over ``axes`` spatial axes; see the operations' own files."""

    bits = Bits.WHOLE
    params = (
        Operand("input"),
        Operand("weight"),
        Operand("bias", optional=True),
        Attr("stride", constants, (1,)),
        Attr("padding", constants, (0,)),
        Attr("dilation", constants, (1,)),
        Attr("groups", constant, 1),
    )

    def __init__(self, name: str, axes: int, examples: Sequence[Example]) -> None:
        self.name = name
        self.axes = axes
        self.examples = tuple(examples)

    def window(self, call: Call, name: str) -> tuple[int, ...]:
        """Attribute ``name`` per spatial axis; one number stands for all of them."""
        given, least = call.attrs[name], 0 if name == "padding" else 1
        if len(given) not in (1, self.axes) or any(v < least for v in given):
            wants = f"1 or {self.axes} integers of {least} or more"
            call.refuse("op-attribute", name=name, wants=wants, found=repr(given))
        return tuple(given) * (self.axes if len(given) == 1 else 1)

    def results(self, call: Call) -> tuple[Result, ...]:
        x, w = call.arg(0), call.arg(1)
        bias, groups = call.args[2], call.attrs["groups"]
        if x.dtype not in (F64, F32, F16, BF16):
            call.refuse("op-dtype", dtype=x.dtype, wants="f64 f32 f16 bf16")
        for other in (w, bias):
            if other is not None:
                demand_same(call, x, other)
        if groups < 1:
            wants = "a count of 1 or more"
            call.refuse("op-attribute", name="groups", wants=wants, found=repr(groups))
        fits = (
            x.rank == self.axes + 2
            and w.rank == self.axes + 2
            and x.shape[1] == w.shape[1] * groups
            and exact(w.shape[0], groups) is not None
            and (bias is None or bias.shape == w.shape[:1])
        )
        if not fits:
            call.refuse("conv-shapes", input=x, weight=w, bias=bias, groups=groups)
        return (Result((x.shape[0], w.shape[0], *self._lengths(call)), x.dtype),)

    def _lengths(self, call: Call) -> Shape:
        """Spatial extents of the result; refuses a window longer than the padded input."""
        stride, padding, dilation = (
            self.window(call, name) for name in ("stride", "padding", "dilation")
        )
        out: list[Dim] = []
        for n in range(self.axes):
            extent, kernel = call.arg(0).shape[n + 2], call.arg(1).shape[n + 2]
            reach = (kernel - 1) * dilation[n] + 1
            room = extent + 2 * padding[n] - reach
            if bounds(room)[1] < 0 or bounds(kernel)[0] < 1:
                call.refuse(
                    "conv-window", axis=n + 2, extent=extent, padding=padding[n], reach=reach
                )
            out.append(room // stride[n] + 1)
        return tuple(out)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        w, groups = call.arg(1), call.attrs["groups"]
        inner, kernel = w.shape[1], w.shape[2:]
        dims = domain(
            [(name, e, False) for name, e in zip(("n", "o"), shapes[0], strict=False)]
            + [(f"l{n}", e, False) for n, e in enumerate(shapes[0][2:])]
            + [("c", inner, True)]
            + [(f"k{n}", e, True) for n, e in enumerate(kernel)]
        )
        here = [d.var.expr() if d.extent != 1 else 0 for d in dims]
        out = tuple(d.var.expr() for d in dims[: 2 + self.axes])
        channel, taps = here[2 + self.axes], here[3 + self.axes :]
        first = 0 if groups == 1 else here[1] // (w.shape[0] // groups) * inner
        stride, padding, dilation = (
            self.window(call, name) for name in ("stride", "padding", "dilation")
        )
        reads = tuple(
            here[2 + n] * stride[n] + taps[n] * dilation[n] - padding[n] for n in range(self.axes)
        )
        operands = [(here[0], first + channel, *reads), (here[1], channel, *taps)]
        if call.args[2] is not None:
            operands.append((here[1],))
        combine = None if call.args[2] is not None else "sum"  # a bias is added once
        return AccessRelation(dims, tuple(operands), (out,), combine)

    def partial(self, call: Call) -> tuple[Partial, ...]:
        op = f"tf.{call.op}"
        if call.args[2] is not None:
            return refuse_partial(op, call.args, call.span)
        return partial_scaled(op, call.args, call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        dtype = torch_dtype(result.dtype)
        if prod(result.shape) == 0:
            return args[0].new_empty(result.shape)
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        x, w, bias = (None if a is None else a.to(wide) for a in args)
        conv = getattr(torch.nn.functional, f"conv{self.axes}d")
        with torch.backends.cudnn.flags(allow_tf32=False):
            out = conv(
                x, w, bias, attrs["stride"], attrs["padding"], attrs["dilation"], attrs["groups"]
            )
        return out.to(dtype)

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n, w = product(shapes[0]), call.arg(1)
        bias = 0 if call.args[2] is None else n
        return work(w.dtype, matrix=n * product(w.shape[1:]) * 2, float=bias)
