"""What operations along one axis share: its number, and relations that need it whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.ir.access import WHOLE, AccessRelation, Coord, domain
from tilefoundry.ir.dtype import F32, F64, DType
from tilefoundry.ops import _movement
from tilefoundry.ops.base import Call, Shape


def axis_of(call: Call, rank: int) -> int:
    """The axis that attribute ``axis`` gives, not negative; refuses one out of range."""
    return _movement.axis_of(call, call.attrs["axis"], rank)


def along(shape: Shape, axes: Collection[int], *whole: int) -> AccessRelation:
    """Results of ``shape`` that each read all of ``axes``; the further operands, of ranks
    ``whole``, are read entirely (0: left out)."""
    dims = domain((f"i{n}", e, False) for n, e in enumerate(shape))
    here: tuple[Coord, ...] = tuple(d.var.expr() for d in dims)
    reads = tuple(WHOLE if n in axes else c for n, c in enumerate(here))
    rest = tuple((WHOLE,) * rank for rank in whole)
    return AccessRelation(dims, (reads, *rest), (here,))


def statistics(dtype: DType) -> DType:
    """The dtype in which sums and exponentials over an axis are kept."""
    return F64 if dtype is F64 else F32


def refuse_empty(op: str, kind: str, x: Any, axes: Iterable[int]) -> None:
    """Refuse a torch tensor of which an open axis, now empty, must have a largest element."""
    for axis in axes:
        if not x.shape[axis]:
            refuse("reduce-empty", None, op=op, kind=kind, axis=axis % x.dim())
