"""Access relations: which elements each point of an operation's domain touches.

The iteration space is a box of :class:`~tilefoundry.ir.expr.IterVar`; each operand
and result coordinate is a quasi-affine expression of them, the whole axis, or
data-dependent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tilefoundry.ir.expr import Dim, Expr, IterVar


@dataclass(frozen=True)
class Whole:
    """Every element of the axis is touched at each point (softmax along its axis)."""


@dataclass(frozen=True)
class Indirect:
    """The coordinate is data: it is read from operand ``operand``."""

    operand: int


WHOLE = Whole()
Coord: TypeAlias = Dim | Whole | Indirect


@dataclass(frozen=True)
class Iter:
    """One dimension of the iteration space; ``reduce`` if results do not keep it."""

    var: IterVar
    extent: Dim
    reduce: bool = False


@dataclass(frozen=True)
class AccessRelation:
    """Coordinates of each operand and result at a point of the domain.

    ``combine`` names how partial results over reduced dimensions are combined
    (``sum``, ``max``, ...); None if the operation needs the whole reduced axis.
    """

    domain: tuple[Iter, ...]
    operands: tuple[tuple[Coord, ...], ...]
    results: tuple[tuple[Coord, ...], ...]
    combine: str | None = None

    def iter_of(self, coord: Coord) -> Iter | None:
        """The dimension a coordinate equals, None if it is anything but one."""
        if not isinstance(coord, Expr) or len(coord.terms) != 1:
            return None
        mono, coef = coord.terms[0]
        if coef != 1 or len(mono) != 1:
            return None
        return next((d for d in self.domain if d.var is mono[0]), None)


def domain(extents: Iterable[tuple[str, Dim, bool]]) -> tuple[Iter, ...]:
    """Iteration dimensions from (name, extent, reduce)."""
    out: list[Iter] = []
    for name, extent, reduce in extents:
        hi = extent - 1 if isinstance(extent, int) else float("inf")
        out.append(Iter(IterVar(name, 0, hi), extent, reduce))
    return tuple(out)


def elementwise(shape: tuple[Dim, ...], operands: Iterable[tuple[Dim, ...]]) -> AccessRelation:
    """torch broadcasting: operand axes of extent 1 stay at 0, missing ones are dropped."""
    dims = domain((f"i{n}", e, False) for n, e in enumerate(shape))
    here = tuple(d.var.expr() for d in dims)
    reads: list[tuple[Coord, ...]] = []
    for operand in operands:
        lead = len(shape) - len(operand)
        reads.append(
            tuple(
                0 if operand[n] == 1 and shape[lead + n] != 1 else here[lead + n]
                for n in range(len(operand))
            )
        )
    return AccessRelation(dims, tuple(reads), (here,))
