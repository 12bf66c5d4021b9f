"""Distribution through an operation, derived from its access relation.

A split of an operand's axis follows that axis into the iteration space. Where the
dimension is kept, the result is split there; where it is reduced and the operation
may leave partial results, the result is partial; otherwise it is refused. Operands
meet by logical axes: each unit must hold what its part of the domain needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.access import AccessRelation, Iter
from tilefoundry.ir.expr import Dim
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import Digit, ShardLayout, from_digits, shape_text
from tilefoundry.ir.types import TensorType

Partial = tuple[Axis, str]


@dataclass(frozen=True)
class Place:
    """A mesh axis carries digit (index // inner) % extent of one dimension."""

    dim: Iter
    inner: Dim
    operand: int


def distribute(
    op: str,
    relation: AccessRelation,
    args: Sequence[TensorType | None],
    shapes: Sequence[tuple[Dim, ...]],
    partial: tuple[Partial, ...],
    span: Span | None,
) -> list[ShardLayout | None]:
    """The layout of each result; refuses what a unit could not compute alone."""
    places: dict[Axis, Place] = {}
    for n, arg in enumerate(args):
        for digit in arg.digits if arg is not None else ():
            _place(op, relation, n, args, digit, places, span)
    out: list[ShardLayout | None] = []
    for coords, shape in zip(relation.results, shapes, strict=True):
        digits: list[Digit] = []
        partials = list(partial)
        for axis, place in places.items():
            if place.dim.reduce:
                if relation.combine is None:
                    _whole(op, axis, args, place.operand, span)
                partials.append((axis, str(relation.combine)))
                continue
            at = [j for j, c in enumerate(coords) if relation.iter_of(c) is place.dim]
            if not at:
                _whole(op, axis, args, place.operand, span)
            digits.append(Digit(axis, at[0], place.inner))
        out.append(_layout(shape, tuple(digits), tuple(partials), args))
    return out


def _place(
    op: str,
    relation: AccessRelation,
    n: int,
    args: Sequence[TensorType | None],
    digit: Digit,
    places: dict[Axis, Place],
    span: Span | None,
) -> None:
    arg = args[n]
    assert arg is not None
    if digit.axis.extent == 1:
        return
    dim = relation.iter_of(relation.operands[n][digit.dim])
    if dim is None or dim.extent != arg.shape[digit.dim]:
        _whole(op, digit.axis, args, n, span)
        return
    new = Place(dim, digit.inner, n)
    old = places.setdefault(digit.axis, new)
    if (old.dim, old.inner) != (new.dim, new.inner):
        refuse(
            "shard-operands-disagree",
            span,
            op=op,
            axis=digit.axis.name,
            first=_spell(args, old.operand),
            second=_spell(args, n),
            a=old.operand,
            b=n,
        )


def _spell(args: Sequence[TensorType | None], n: int) -> str:
    return str(args[n])


def _whole(
    op: str, axis: Axis, args: Sequence[TensorType | None], n: int, span: Span | None
) -> None:
    arg = args[n]
    assert arg is not None
    rest = from_digits(arg.shape, tuple(d for d in arg.digits if d.axis != axis))
    dim = next(d.dim for d in arg.digits if d.axis == axis)
    refuse(
        "shard-needs-whole",
        span,
        op=op,
        axis=axis.name,
        operand=n,
        type=arg,
        dim=dim,
        whole=rest.text(),
    )


def _layout(
    shape: tuple[Dim, ...],
    digits: tuple[Digit, ...],
    partial: tuple[Partial, ...],
    args: Sequence[TensorType | None],
) -> ShardLayout | None:
    partial = tuple(dict.fromkeys(partial))
    if not digits and not partial:
        return None
    for arg in args:
        if arg is not None and arg.shape == shape and arg.layout is not None:
            same = {(d.axis, d.dim, d.inner) for d in arg.digits}
            if same == {(d.axis, d.dim, d.inner) for d in digits} and arg.layout.swizzle is None:
                return replace(arg.layout, partial=partial)
    return from_digits(shape, digits, partial)


def refuse_partial(
    op: str, args: Sequence[TensorType | None], span: Span | None
) -> tuple[Partial, ...]:
    """No operand may be partial."""
    for n, arg in enumerate(args):
        for axis, kind in arg.partial if arg is not None else ():
            refuse(
                "partial-consumed",
                span,
                op=op,
                operand=n,
                axis=axis.name,
                kind=kind,
                shape=shape_text(arg.shape) if arg is not None else "",
            )
    return ()


def partial_moved(args: Iterable[TensorType | None]) -> tuple[Partial, ...]:
    """Pure data movement of one operand keeps its partial axes."""
    return tuple(p for arg in args if arg is not None for p in arg.partial)


def partial_summed(
    op: str, args: Sequence[TensorType | None], span: Span | None
) -> tuple[Partial, ...]:
    """Addition: both operands partial sums on the same axes, or none. The one term of an axis
    of one unit is the whole."""
    given = [arg for arg in args if arg is not None]
    held = [{p for p in arg.partial if p[0].extent > 1} for arg in given]
    if held and all(h == held[0] for h in held) and all(k == "sum" for _, k in held[0]):
        return tuple(dict.fromkeys(p for arg in given for p in arg.partial))
    return refuse_partial(op, args, span)


def partial_scaled(
    op: str, args: Sequence[TensorType | None], span: Span | None
) -> tuple[Partial, ...]:
    """Scaling: one operand is a partial sum, the others are whole on its axes."""
    holders = [a for a in args if a is not None and a.partial]
    if len(holders) <= 1 and all(k == "sum" for h in holders for _, k in h.partial):
        return holders[0].partial if holders else ()
    return refuse_partial(op, args, span)
