"""What data movement shares: axes, bits of any dtype, splits that move with their axis.

A coordinate of an access relation that falls outside its operand (or result) touches
nothing there: so ``pad``, ``concat`` and ``split`` state their boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DType
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.shard import Digit, from_digits
from tilefoundry.ir.types import TensorType, TupleType, Type
from tilefoundry.ops.base import Call, Op, Work, torch_dtype, work
from tilefoundry.ops.propagate import Partial, partial_moved, refuse_partial


def axis_of(call: Call, axis: int, rank: int) -> int:
    """``axis`` counted from the front; refuses one out of range."""
    if not -rank <= axis < rank:
        call.refuse("op-axis", axis=axis, rank=rank)
    return axis % rank if rank else 0


def demand_index(call: Call, n: int) -> TensorType:
    """Operand ``n``, which must hold integers."""
    index = call.arg(n)
    if index.dtype.kind not in ("int", "uint"):
        call.refuse("op-dtype", dtype=index.dtype, wants="int uint")
    return index


def demand_same(call: Call, a: TensorType, b: TensorType) -> None:
    """Both operands must have one element type."""
    if a.dtype != b.dtype:
        call.refuse("op-promotion", a=a.dtype, b=b.dtype)


def demand_addable(call: Call, dtype: DType) -> None:
    """Refuse an element type that is not added in."""
    if dtype.kind == "bool" or dtype.is_narrow:
        call.refuse("op-dtype", dtype=dtype, wants="float int uint")


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the largest value of an integer or bool ``dtype``."""
    if dtype.kind == "bool":
        return 0, 1
    bits = dtype.bits - (dtype.kind == "int")
    return -(2**bits) * (dtype.kind == "int"), 2**bits - 1


def demand_value(call: Call, name: str, dtype: DType) -> None:
    """The number in attribute ``name`` must be one of ``dtype``'s values."""
    value = call.attrs[name]
    if dtype.is_float:
        return
    lo, hi = limits(dtype)
    if not float(value).is_integer() or not lo <= value <= hi:
        wants = f"a value of {dtype}, {lo} to {hi}"
        call.refuse("op-attribute", name=name, wants=wants, found=repr(value))


def exact(a: Dim, b: Dim) -> Dim | None:
    """a / b where b surely divides a, else None."""
    if b == 0:
        return None
    quotient = a // b
    return quotient if quotient * b == a else None


def same_digits(args: Sequence[TensorType], axis: int, parts: Sequence[Dim]) -> dict[Digit, Digit]:
    """Splits of ``axis`` that all operands share and that repeat within each of ``parts``.

    (index // inner) % units has the period inner · units; where that divides every
    part, the units that hold an element are the same in the part and in the whole.
    """
    shared = [d for d in args[0].digits if d.dim == axis and d.axis.extent > 1]
    return {
        d: d
        for d in shared
        if all(d in a.digits for a in args)
        and all(p % (d.inner * d.axis.extent) == 0 for p in parts)
    }


def infer_carrying(op: Op, call: Call, carried: Mapping[Digit, Digit]) -> Type:
    """Infer by the relation, but for the splits in ``carried``: each result has their images."""
    if not carried:
        return Op.infer(op, call)
    bare = tuple(a if a is None else _without(a, carried) for a in call.args)
    plain = Op.infer(op, replace(call, args=bare))
    items = plain.items if isinstance(plain, TupleType) else (plain,)
    moved = tuple(carried.values())
    out = tuple(t.with_(layout=from_digits(t.shape, (*t.digits, *moved), t.partial)) for t in items)
    return TupleType(out) if isinstance(plain, TupleType) else out[0]


def _without(arg: TensorType, digits: Mapping[Digit, Digit]) -> TensorType:
    left = tuple(d for d in arg.digits if d not in digits)
    return arg.with_(layout=from_digits(arg.shape, left, arg.partial))


def partial_alike(
    op: str, args: Sequence[TensorType | None], span: Span | None
) -> tuple[Partial, ...]:
    """Parts of one result: all partial on the same axes and kinds, or none partial."""
    held = [set(a.partial) for a in args if a is not None]
    if held and all(h == held[0] for h in held):
        return next(a for a in args if a is not None).partial
    return refuse_partial(op, args, span)


def partial_filled(
    op: str, x: TensorType, value: float | int | None, span: Span | None
) -> tuple[Partial, ...]:
    """Data movement that also fills: combining the fills must give ``value`` again."""
    kinds = {kind for _, kind in x.partial} - {"max", "min"}
    if value is None or not kinds or (kinds == {"sum"} and value == 0):
        return partial_moved((x,))
    return refuse_partial(op, (x,), span)


def conversions(call: Call, args: Sequence[TensorType], dtype: DType) -> Work:
    """One conversion per element of each operand that is not ``dtype`` already."""
    n: Dim = 0
    for arg in args:
        n = n + (arg.size if arg.dtype != dtype else 0)
    return work(dtype, **{"float" if dtype.is_float else "int": n})


def as_bits(x: Any) -> Any:
    """``x`` viewed as integers of its width: torch moves those in every kernel."""
    import torch

    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.view(widths[x.element_size()])


def value_bits(value: float | int, dtype: DType) -> int:
    """The bits of ``value`` rounded to ``dtype``, as :func:`as_bits` shows them."""
    import torch

    wide = torch.float64 if isinstance(value, float) else torch.int64
    one = torch.tensor([value], dtype=wide).to(torch_dtype(dtype))
    return int(as_bits(one).item())


def checked_index(op: str, index: Any, extent: int, dim: int) -> Any:
    """``index`` as int64; refuses a value outside 0 .. extent - 1."""
    import torch

    at = index.to(torch.int64)
    bad = (at < 0) | (at >= extent)
    if bool(bad.any()):
        found = int(at[bad].reshape(-1)[0])
        refuse(
            "index-out-of-range",
            None,
            op=f"tf.{op}",
            index=found,
            extent=extent,
            last=extent - 1,
            dim=dim,
        )
    return at


def sum_dtype(x: Any) -> Any:
    """The torch dtype in which elements of ``x`` are added."""
    import torch

    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
