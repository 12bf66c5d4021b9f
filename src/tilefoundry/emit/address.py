"""Where an element lies, as its buffer's layout says."""

from __future__ import annotations

from tilefoundry.ir.expr import Dim, floordiv, mod
from tilefoundry.tir.program import Buffer


def address(buffer: Buffer, place: tuple[Dim, ...]) -> Dim:
    """The element's number from the buffer's start, as its layout says."""
    layout = buffer.layout
    out: Dim = 0
    if layout is None or layout.strides is None:
        for x, extent in zip(place, buffer.shape, strict=True):
            out = out * extent + x
        return out
    for dim, group in enumerate(layout.groups(buffer.shape)):
        inner = 1
        for mode in reversed(group):
            extent = int(layout.modes[mode])  # type: ignore[arg-type]
            digit = floordiv(place[dim], inner)
            digit = digit if mode == group[0] else mod(digit, extent)
            out = out + digit * layout.strides[mode]
            inner *= extent
    return out + layout.offset
