"""Where the elements of a buffer in registers lie: which lane, which vector.

A core holds a buffer as an array of vectors, one lane each for a unit. The vectors are
numbered by the digits of an element's coordinates that no mesh axis takes, last axis fastest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilefoundry.ir.expr import Dim, floordiv, mod
from tilefoundry.ir.shard import Digit
from tilefoundry.tir.program import Buffer


@dataclass(frozen=True)
class Segment:
    """Part of a coordinate that each unit counts through: (coordinate // inner) % extent."""

    dim: int
    extent: int
    inner: int


@lru_cache(maxsize=4096)
def digits_of(buffer: Buffer) -> tuple[Digit, ...]:
    """The splits of a buffer over units, those of one unit left out."""
    return tuple(d for d in buffer.type.digits if d.axis in buffer.mesh.axes and d.axis.extent > 1)


def segments(shape: tuple[int, ...], digits: tuple[Digit, ...]) -> tuple[Segment, ...]:
    """What is left of the axes of ``shape`` when ``digits`` are taken, outermost first."""
    out: list[Segment] = []
    for dim, extent in enumerate(shape):
        above = extent
        for digit in sorted((d for d in digits if d.dim == dim), key=lambda d: -int(d.inner)):  # type: ignore[arg-type]
            inner = int(digit.inner) * digit.axis.extent  # type: ignore[arg-type]
            if above > inner:
                out.append(Segment(dim, above // inner, inner))
            above = int(digit.inner)  # type: ignore[arg-type]
        if above > 1:
            out.append(Segment(dim, above, 1))
    return tuple(out)


@lru_cache(maxsize=4096)
def held(buffer: Buffer) -> tuple[Segment, ...]:
    return segments(buffer.shape, digits_of(buffer))


def count(buffer: Buffer) -> int:
    """Vectors that a core holds of one slot."""
    out = 1
    for segment in held(buffer):
        out *= segment.extent
    return out


def register(buffer: Buffer, at: tuple[Dim, ...]) -> Dim:
    """The number of the vector that holds the element at coordinates ``at``."""
    out: Dim = 0
    for segment in held(buffer):
        part = floordiv(at[segment.dim], segment.inner)
        out = out * segment.extent + mod(part, segment.extent)
    return out
