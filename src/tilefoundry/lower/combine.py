"""Partial values that CTAs of a cluster complete through each other's shared memory.

Threads of a CTA combine first; what is left of each CTA is laid into its shared memory, and
whoever needs an element adds up that of every CTA.
"""

from __future__ import annotations

from math import prod

from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.unit import accumulator_bits

VECTOR = 16
"""Bytes that a thread moves at once."""


def term_dtype(result: TensorType) -> DType:
    """What terms are kept in until all are added: one rounding, at the end."""
    wide = accumulator_bits(result) > result.dtype.bits and result.dtype.is_float
    return DTYPES["f32"] if wide else result.dtype


def terms_layout(held: TensorType, level: str) -> ShardLayout | None:
    """A layout for the terms that units of ``level`` hold as ``held``, such that what one of
    them moves at once is contiguous and neighbours follow each other: without conflicts, as
    they are read just as they are written. None: row-major, where other units split it too."""
    layout = held.layout
    if layout is None or any(a is not None and a.level != level for a in layout.axes):
        return None
    left = max(1, VECTOR * 8 // held.dtype.bits)
    modes = [
        [(int(layout.modes[m]), layout.axes[m], m) for m in group]  # type: ignore[arg-type]
        for group in layout.groups(held.shape)
    ]
    inner: dict[int, int] = {}
    for extent, axis, m in sorted((x for g in modes for x in g), key=lambda x: -x[2]):
        if axis is None and extent > 1:
            inner[m] = _common(extent, left)
            left //= inner[m]
            if inner[m] != extent:
                break
    step = 1
    strides: dict[tuple[int, bool], int] = {}
    flat = [x for g in modes for x in g]
    for m in sorted(inner, reverse=True):
        strides[m, True] = step
        step *= inner[m]
    for extent, _, m in sorted((x for x in flat if x[1] is not None), key=_unit_stride):
        strides[m, False] = step
        step *= extent
    for extent, _, m in sorted((x for x in flat if x[1] is None), key=lambda x: -x[2]):
        strides[m, False] = step
        step *= extent // inner.get(m, 1)
    shape: list[tuple[int, ...]] = []
    steps: list[tuple[int, ...]] = []
    for group in modes:
        sizes: list[int] = []
        mine: list[int] = []
        for extent, _, m in group:
            taken = inner.get(m, 1)
            for size, key in ((extent // taken, (m, False)), (taken, (m, True))):
                if size > 1:
                    sizes.append(size)
                    mine.append(strides[key])
        shape.append(tuple(sizes) or (1,))
        steps.append(tuple(mine) or (0,))
    assert step == prod(int(e) for e in held.shape)  # type: ignore[arg-type]
    count = sum(map(len, shape))
    return ShardLayout(tuple(shape), tuple(steps), (None,) * count)


def _common(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` up to ``most``."""
    return max(d for d in range(1, max(1, most) + 1) if extent % d == 0)


def _unit_stride(mode: tuple[int, Axis | None, int]) -> int:
    assert mode[1] is not None
    return mode[1].stride
