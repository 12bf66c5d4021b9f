"""matmul: out[..., m, n] = sum_k lhs[..., m, k] · rhs[..., k, n] (torch's batching rules).

Rounding: products and sums in float32 for 16- and 8-bit floats (float64 for f64, exact
int32 for integers), rounded once to ``out_dtype``. ``b_layout="NK"`` reads rhs
as [..., n, k], ``a_layout="KM"`` reads lhs as [..., k, m].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.ir.access import AccessRelation, Coord, domain
from tilefoundry.ir.dtype import F32, F64, I32, DType
from tilefoundry.ir.expr import Dim, product
from tilefoundry.ir.types import IMMEDIATE, TensorType, Type
from tilefoundry.ops._elementwise import broadcast
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial, partial_scaled
from tilefoundry.ops.signature import Attr, Operand, choice, dtype_or_none


def accumulator(dtype: DType) -> DType:
    """The dtype in which products of ``dtype`` are summed."""
    if dtype.is_float:
        return F64 if dtype is F64 else F32
    return I32


class Matmul(Op):
    name = "matmul"
    bits = Bits.WHOLE
    params = (
        Operand("lhs"),
        Operand("rhs"),
        Attr("out_dtype", dtype_or_none, None),
        Attr("a_layout", choice("mk", "km"), "mk"),
        Attr("b_layout", choice("kn", "nk"), "kn"),
    )
    examples = (
        *(Example((((4, 8), d), ((8, 6), d))) for d in ("f32", "bf16", "f16", "f64")),
        Example((((2, 1, 4, 6), "f32"), ((3, 6, 2), "f32"))),
        Example((((4, 8), "bf16"), ((8, 5), "bf16")), {"out_dtype": "f32"}),
        Example((((4, 8), "f16"), ((5, 8), "f16")), {"b_layout": "NK"}),
        Example((((8, 4), "f32"), ((8, 5), "f32")), {"a_layout": "KM"}),
        Example((((2, 1, 4, 8), "f32"), ((3, 8, 5), "f32"))),
        Example((((8,), "f32"), ((8,), "f32"))),
        Example((((8,), "f32"), ((2, 8, 5), "f32"))),
        Example((((4, 8), "fp8e4m3"), ((8, 5), "fp8e4m3")), {"out_dtype": "bf16"}),
        Example((((4, 8), "i8"), ((8, 5), "i8")), {"out_dtype": "i32"}, "small"),
    )

    def _axes(self, call: Call) -> tuple[Shape, Shape, Dim, Dim, Dim]:
        """Batch extents of both sides and (m, k, n); m and n are 1 for vectors."""
        a, b = call.arg(0), call.arg(1)
        if a.rank == 0 or b.rank == 0:
            call.refuse("matmul-rank", lhs=a, rhs=b)
        m, ka = (1, a.shape[-1]) if a.rank == 1 else a.shape[-2:]
        if call.attrs["a_layout"] == "km" and a.rank > 1:
            m, ka = ka, m
        kb, n = (b.shape[-1], 1) if b.rank == 1 else b.shape[-2:]
        if call.attrs["b_layout"] == "nk" and b.rank > 1:
            kb, n = n, kb
        if ka != kb:
            call.refuse("matmul-inner", lhs=a, rhs=b, a=ka, b=kb)
        return a.shape[:-2], b.shape[:-2], m, ka, n

    def results(self, call: Call) -> tuple[Result, ...]:
        a, b = call.arg(0), call.arg(1)
        if a.dtype != b.dtype and not (a.dtype.is_narrow and b.dtype.is_narrow):
            call.refuse("op-promotion", a=a.dtype, b=b.dtype)
        if a.dtype.kind == "bool":
            call.refuse("op-dtype", dtype=a.dtype, wants="float int uint")
        out = call.attrs["out_dtype"] or a.dtype
        if out.is_float != a.dtype.is_float or (out.is_narrow and not call.attrs["out_dtype"]):
            call.refuse("op-dtype", dtype=out, wants="float" if a.dtype.is_float else "int")
        batch_a, batch_b, m, _, n = self._axes(call)
        shape = broadcast(call, [batch_a, batch_b])
        shape += (m,) if a.rank > 1 else ()
        shape += (n,) if b.rank > 1 else ()
        return (Result(shape, out),)

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        a, b = call.arg(0), call.arg(1)
        batch_a, batch_b, m, k, n = self._axes(call)
        batch = broadcast(call, [batch_a, batch_b])
        dims = domain(
            [(f"b{i}", e, False) for i, e in enumerate(batch)]
            + [("m", m, False), ("n", n, False), ("k", k, True)]
        )
        here = [d.var.expr() for d in dims]
        im, jn, lk = here[-3:]

        def lead(extents: Shape) -> tuple[Coord, ...]:
            skip = len(batch) - len(extents)
            return tuple(
                0 if e == 1 and batch[skip + i] != 1 else here[skip + i]
                for i, e in enumerate(extents)
            )

        lhs = (lk,) if a.rank == 1 else (lk, im) if call.attrs["a_layout"] == "km" else (im, lk)
        rhs = (lk,) if b.rank == 1 else (jn, lk) if call.attrs["b_layout"] == "nk" else (lk, jn)
        out: tuple[Coord, ...] = tuple(here[: len(batch)])
        out += (im,) if a.rank > 1 else ()
        out += (jn,) if b.rank > 1 else ()
        return AccessRelation(
            dims, (lead(batch_a) + lhs, lead(batch_b) + rhs), (out,), combine="sum"
        )

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_scaled("tf.matmul", call.args, call.span)

    def storage(self, call: Call) -> str:
        """Accumulators live nearest to the units once the operands were brought near."""
        found = [a.storage for a in call.args if a is not None and a.storage != IMMEDIATE]
        storages = call.context.storages
        return storages[0] if storages[0] in found else storages[-1]

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        a, b = args
        assert isinstance(result, TensorType)
        if attrs["a_layout"] == "km" and a.dim() > 1:
            a = a.transpose(-1, -2)
        if attrs["b_layout"] == "nk" and b.dim() > 1:
            b = b.transpose(-1, -2)
        wide = torch.float64 if a.dtype is torch.float64 else torch.float32
        if not a.is_floating_point():
            wide = torch.int32 if a.dtype != torch.int64 else torch.int64
        return torch.matmul(a.to(wide), b.to(wide)).to(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        _, _, _, k, _ = self._axes(call)
        return work(call.arg(0).dtype, matrix=product(shapes[0]) * k * 2)


OP = Matmul()
