"""einsum: out[kept letters] = sum over the other letters of the product of all inputs.

``equation`` is "ab,bc->ac"; without "->" the result has the letters that occur once,
in alphabetical order. A letter has one extent everywhere; "..." is not taken.
Rounding: sums and products in float32 for floats of 16 bits or fewer (float64 for
f64, int64 for integers), from left to right, rounded once to ``out_dtype`` (by
default the operands' dtype).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.access import AccessRelation, domain
from tilefoundry.ir.expr import Dim, minimum, product
from tilefoundry.ir.types import TensorType, Type
from tilefoundry.ops._elementwise import tensors
from tilefoundry.ops.base import Bits, Call, Example, Op, Result, Shape, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial, partial_scaled
from tilefoundry.ops.signature import Attr, Operand, dtype_or_none, text


def terms(
    equation: str, ranks: Sequence[int], span: Span | None = None
) -> tuple[tuple[str, ...], str]:
    """The letters of each input and of the result; refuses what is no such equation."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    ins = tuple(left.split(","))
    used = "".join(ins)
    out = right if arrow else "".join(sorted(c for c in set(used) if used.count(c) == 1))
    problem = ""
    if not all(c.isascii() and c.isalpha() for c in used + out):
        problem = "only letters, commas and one -> are taken"
    elif len(ins) != len(ranks):
        problem = f"{len(ins)} terms for {len(ranks)} tensors"
    elif bad := [n for n, rank in enumerate(ranks) if len(ins[n]) != rank]:
        problem = f"{len(ins[bad[0]])} letters for axes of tensor {bad[0]} of rank {ranks[bad[0]]}"
    elif len(set(out)) != len(out):
        problem = f"a letter occurs twice in the result {out}"
    elif missing := [c for c in out if c not in used]:
        problem = f"{missing[0]} of the result is in no tensor"
    if problem:
        refuse("einsum-equation", span, op="tf.einsum", equation=equation, problem=problem)
    return ins, out


def steps(ins: Sequence[str], out: str) -> Iterator[tuple[int, str, str, str]]:
    """Contractions from left to right: (input, letters so far, its letters, letters after).

    Each input is first summed over the letters that nothing else has.
    """
    held = ""
    for n, own in enumerate(ins):
        rest = set(out).union(*ins[n + 1 :])
        own = "".join(c for c in dict.fromkeys(own) if c in rest.union(held))
        joined = (
            out if n + 1 == len(ins) else "".join(c for c in dict.fromkeys(held + own) if c in rest)
        )
        yield n, held, own, joined
        held = joined


class Einsum(Op):
    name = "einsum"
    bits = Bits.WHOLE
    params = (
        Attr("equation", text),
        Operand("inputs", many=True),
        Attr("out_dtype", dtype_or_none, None),
    )
    examples = (
        Example((((3, 4), "f32"), ((4, 5), "f32")), {"equation": "ik,kj->ij"}),
        Example(
            (((2, 3, 4), "bf16"), ((2, 5, 4), "bf16")),
            {"equation": "bqd, bkd -> bqk", "out_dtype": "f32"},
        ),
        Example((((3, 4), "f16"),), {"equation": "ij->ji"}),
        Example((((4, 4), "f32"),), {"equation": "ii"}),
        Example((((3,), "f64"), ((4,), "f64"), ((3, 4), "f64")), {"equation": "i,j,ij->"}),
        Example((((3,), "i32"), ((4,), "i32")), {"equation": "i,j"}, "small"),
        Example(
            (((3, 4), "fp8e4m3"), ((4, 5), "fp8e5m2")),
            {"equation": "ik,kj->ij", "out_dtype": "bf16"},
        ),
        Example((((0, 4), "f32"), ((4, 5), "f32")), {"equation": "ik,kj->ij"}),
    )

    def letters(self, call: Call) -> tuple[tuple[str, ...], str]:
        return terms(call.attrs["equation"], [a.rank for a in tensors(call)], call.span)

    def results(self, call: Call) -> tuple[Result, ...]:
        args = tensors(call)
        if not args:
            takes = "(equation, *inputs, out_dtype=None)"
            call.refuse("op-arguments", takes=takes, problem="no tensor is given")
        first = args[0].dtype
        for arg in args[1:]:
            if arg.dtype != first and not (arg.dtype.is_narrow and first.is_narrow):
                call.refuse("op-promotion", a=first, b=arg.dtype)
        if first.kind == "bool":
            call.refuse("op-dtype", dtype=first, wants="float int uint")
        dtype = call.attrs["out_dtype"] or first
        if dtype.is_float != first.is_float or (dtype.is_narrow and not call.attrs["out_dtype"]):
            call.refuse("op-dtype", dtype=dtype, wants="float" if first.is_float else "int")
        ins, out = self.letters(call)
        extents: dict[str, Dim] = {}
        for n, (own, arg) in enumerate(zip(ins, args, strict=True)):
            for c, extent in zip(own, arg.shape, strict=True):
                if extents.setdefault(c, extent) != extent:
                    call.refuse("einsum-extents", letter=c, a=extents[c], b=extent, n=n)
        return (Result(tuple(extents[c] for c in out), dtype),)

    def _extents(self, call: Call, shape: Shape) -> dict[str, Dim]:
        """Extent of each letter; a unit's part where only some operands are split."""
        ins, out = self.letters(call)
        extents = dict(zip(out, shape, strict=True))
        for own, arg in zip(ins, tensors(call), strict=True):
            for c, extent in zip(own, arg.shape, strict=True):
                if c not in out:
                    extents[c] = minimum(extents[c], extent) if c in extents else extent
        return extents

    def relation(self, call: Call, shapes: tuple[Shape, ...]) -> AccessRelation:
        ins, out = self.letters(call)
        extents = self._extents(call, shapes[0])
        dims = domain((c, e, c not in out) for c, e in extents.items())
        at = {d.var.name: d.var.expr() for d in dims}
        reads = tuple(tuple(at[c] for c in own) for own in ins)
        return AccessRelation(dims, reads, (tuple(at[c] for c in out),), combine="sum")

    def partial(self, call: Call) -> tuple[Partial, ...]:
        return partial_scaled("tf.einsum", call.args, call.span)

    def evaluate(self, args: list[Any], attrs: Mapping[str, Any], result: Type) -> Any:
        import torch

        assert isinstance(result, TensorType)
        first = args[0].dtype
        wide = torch.float64 if first is torch.float64 else torch.float32
        wide = wide if first.is_floating_point else torch.int64
        ins, out = terms(attrs["equation"], [a.dim() for a in args])
        held = args[0].new_ones((), dtype=wide)
        for n, before, own, after in steps(ins, out):
            part = torch.einsum(f"{ins[n]}->{own}", args[n].to(wide))
            if n:
                held = torch.einsum(f"{before},{own}->{after}", held, part)
            else:
                held = torch.einsum(f"{own}->{after}", part)
        return held.to(torch_dtype(result.dtype))

    def work(self, call: Call, shapes: tuple[Shape, ...]) -> Work:
        args, extents = tensors(call), self._extents(call, shapes[0])
        ins, out = self.letters(call)
        dtype = args[0].dtype
        plain = "float" if dtype.is_float else "int"
        total = Work()
        for n, before, own, after in steps(ins, out):
            if set(own) != set(ins[n]):
                total += work(dtype, **{plain: product(extents[c] for c in set(ins[n]))})
            joined = set(before + own)
            if n and joined != set(after):
                total += work(dtype, matrix=product(extents[c] for c in joined) * 2)
            elif n:
                total += work(dtype, **{plain: product(extents[c] for c in joined)})
        return total


OP = Einsum()
