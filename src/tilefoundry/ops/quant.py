"""quant: scale[b] = max_{i in b} |x[i]| / qmax, out[i] = round(x[i] / scale[b]), by block b.

Results: (quantised, scale). ``group``: None, one block for the whole tensor; -1, the last
axis; n, runs of n along it; a tuple, block extents of the trailing axes, -1 for all of
one. ``scheme``: ``absmax``, or ``absmax_pow2``, whose scale is the next power of two.
qmax: the largest finite value of ``target_dtype``, 127 for i8 (symmetric).

Rounding, in float32 (float64 for f64): the scale once; the quotient once; then to the
target, to the nearest and halves to even, saturating at ±qmax. A block of zeros has
scale 1. scale[b] keeps x's rank, so quantised · scale needs no reshape where blocks
are whole axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span
from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.dtype import LARGEST
from tilefoundry.ir.expr import Dim, bounds, product
from tilefoundry.ir.shard import Digit, from_digits, shape_text
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops._axes import statistics
from tilefoundry.ops._elementwise import demand
from tilefoundry.ops.base import Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.signature import Attr, Operand, choice, constants, dtype


def _group(value: object, op: str, name: str, span: Span | None) -> tuple[int, ...] | None:
    return None if value is None else constants(value, op, name, span)


class Quant(Op):
    name = "quant"
    params = (
        Operand("x"),
        Attr("scheme", choice("absmax", "absmax_pow2"), "absmax"),
        Attr("group", _group, None),
        Attr("target_dtype", dtype),
    )
    examples = (
        Example((((4, 8), "f32"),), {"target_dtype": "i8"}),
        Example((((4, 8), "bf16"),), {"group": -1, "target_dtype": "fp8e4m3"}),
        Example((((4, 8), "f16"),), {"group": 4, "target_dtype": "fp8e5m2"}),
        Example((((4, 8), "f32"),), {"group": (2, 4), "target_dtype": "i8"}),
        Example(
            (((3, 8), "bf16"),),
            {"scheme": "absmax_pow2", "group": 4, "target_dtype": "fp8e4m3"},
        ),
    )

    def blocks(self, call: Call) -> Shape:
        """The extent of a block along each axis of x."""
        x, group = call.arg(0), call.attrs["group"]
        given = (-1,) * x.rank if group is None else group
        lead = x.rank - len(given)
        out: list[Dim] = [1] * lead
        for axis, extent in enumerate(x.shape[lead:] if lead >= 0 else ()):
            size = extent if given[axis] == -1 else given[axis]
            if bounds(size)[0] < 1 or extent % size != 0:
                break
            out.append(size)
        if lead < 0 or len(out) != x.rank:
            call.refuse("quant-group", group=group, shape=shape_text(x.shape))
        return tuple(out)

    def results(self, call: Call) -> tuple[Result, ...]:
        x, target = call.arg(0), call.attrs["target_dtype"]
        demand(call, x.dtype, ("float",))
        if target.name not in LARGEST:
            call.refuse("op-dtype", dtype=target, wants=" ".join(LARGEST))
        sizes = zip(x.shape, self.blocks(call), strict=True)
        scales = tuple(extent // size for extent, size in sizes)
        return Result(x.shape, target), Result(scales, statistics(x.dtype))

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        blocks, (whole, scales) = self.blocks(call), shapes
        rank = len(whole)
        outer = domain((f"b{n}", e, False) for n, e in enumerate(scales))
        inner = domain((f"i{n}", e, False) for n, e in enumerate(blocks))
        read = domain((f"r{n}", e, True) for n, e in enumerate(blocks))
        here = [(outer[n].var.expr() if scales[n] != 1 else 0, blocks[n] != 1) for n in range(rank)]
        reads = tuple(
            b * blocks[n] + read[n].var.expr() if wide else b for n, (b, wide) in enumerate(here)
        )
        out = tuple(
            b * blocks[n] + inner[n].var.expr() if wide else b for n, (b, wide) in enumerate(here)
        )
        return AccessRelation((*outer, *inner, *read), (reads,), (out, tuple(b for b, _ in here)))

    def infer(self, call: Call) -> Type:
        """A split that keeps blocks together splits both results alike."""
        values, scales = self.results(call)
        self.partial(call)
        x, blocks = call.arg(0), self.blocks(call)
        digits = [d for d in x.digits if d.axis.extent > 1]
        if any(d.inner % blocks[d.dim] != 0 for d in digits):
            return super().infer(call)  # refuses, naming the axis to bring together
        split = tuple(Digit(d.axis, d.dim, d.inner // blocks[d.dim]) for d in digits)
        layout = from_digits(scales.shape, split) if split else None
        storage = self.storage(call)
        same = from_digits(x.shape, tuple(digits)) if digits else None
        return TupleType(
            (
                TensorType(values.shape, values.dtype, same, storage),
                TensorType(scales.shape, scales.dtype, layout, storage),
            )
        )

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        (x,) = args
        assert isinstance(result, TupleType)
        values, scales = result.items
        qmax = LARGEST[values.dtype.name]
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        pairs = zip(scales.shape, x.shape, strict=True)
        tiled = [part for n, e in pairs for part in (n, e // n if n else 1)]
        inner = tuple(range(1, 2 * x.dim(), 2))
        blocks = x.to(wide).reshape(tiled)  # type: ignore[arg-type]
        scale = blocks.abs().amax(inner, keepdim=True) / qmax
        if attrs["scheme"] == "absmax_pow2":
            mantissa, exponent = torch.frexp(scale)  # scale = mantissa · 2^exponent, [1/2, 1)
            power = exponent - (mantissa == 0.5).to(exponent.dtype)
            scale = torch.where(scale == 0, scale, torch.ldexp(torch.ones_like(scale), power))
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        q = (blocks / scale).clamp(-qmax, qmax).reshape(x.shape)
        q = q if values.dtype.is_float else torch.round(q)
        return q.to(torch_dtype(values.dtype)), scale.reshape(scales.shape)  # type: ignore[arg-type]

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        n, groups = product(shapes[0]), product(shapes[1])
        # abs, max, divide, two clamps, convert; a block: divide by qmax, a reciprocal
        wide = statistics(call.arg(0).dtype)
        return work(wide, float=6 * n + groups, special=groups)


OP = Quant()
