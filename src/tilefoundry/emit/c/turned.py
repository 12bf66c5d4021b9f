"""A copy in memory whose two sides are contiguous along different axes: a transposition, in
blocks of a vector by a vector.

Neighbours that both sides keep together (two along k, say) are one word of 16, 32 or 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilefoundry.emit.address import address
from tilefoundry.emit.c.kernel import Domain, Kernel
from tilefoundry.ir.expr import Dim, Expr, IterVar, Sym, substitute, symbols
from tilefoundry.tir.program import View

WORDS = (8, 16, 32, 64)
"""Bits that the header has transpositions of."""


@dataclass(frozen=True)
class Turn:
    """``rest`` are the loops around; words of ``bits`` that are neighbours along ``rows`` in
    the destination and along ``columns`` in the source, each with the other's step there."""

    rest: Domain
    bits: int
    rows: int
    columns: int
    to_step: int
    from_step: int


def turn(k: Kernel, write: View, source: View, domain: Domain) -> Turn | None:
    """The transposition that a copy is; None where it is another kind of copy."""
    into, out_of = (address(v.buffer, k.element(v, domain.at)) for v in (write, source))
    steps: dict[IterVar, tuple[int, int]] = {}
    for var in domain.vars:
        to, came = _step(into, var), _step(out_of, var)
        if to is None or came is None:
            return None
        steps[var] = to, came
    extents = dict(zip(domain.vars, domain.segments, strict=True))
    word = next((v for v, both in steps.items() if both == (1, 1)), None)
    size = extents[word].extent if word else 1
    row = next((v for v, (to, _) in steps.items() if to == size and v is not word), None)
    column = next((v for v, (_, came) in steps.items() if came == size and v is not word), None)
    bits = size * write.dtype.bits
    if row is None or column is None or row is column or bits not in WORDS:
        return None
    far = steps[column][0], steps[row][1]
    if any(x % size for x in far) or write.buffer is source.buffer:
        return None
    gone: dict[Sym, Dim] = {v: 0 for v in (row, column, word) if v is not None}
    rest = [v for v in domain.vars if v not in gone]
    around = Domain(
        tuple(extents[v] for v in rest), tuple(rest), tuple(substitute(x, gone) for x in domain.at)
    )
    return Turn(around, bits, extents[row].extent, extents[column].extent,
                far[0] // size, far[1] // size)  # fmt: skip


def _step(place: Dim, var: IterVar) -> int | None:
    """How far one more of ``var`` leads, where it is always as far forward."""
    if not isinstance(place, Expr):
        return None
    step = next((coef for mono, coef in place.terms if mono == (var,)), 0)
    return step if step > 0 and var not in symbols(place - step * var.expr()) else None
