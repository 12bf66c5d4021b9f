"""Partial values that CTAs of a cluster complete through each other's shared memory.

Threads of a CTA combine first; what is left of each CTA is laid into its shared memory, and
whoever needs an element adds up that of every CTA.
"""

from __future__ import annotations

from math import prod

from tilefoundry.ir.dtype import DTYPES, DType
from tilefoundry.ir.mesh import Axis, Mesh
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
    they are read just as they are written. What other units split stays split: each has its
    share alone. None: row-major."""
    layout = held.layout
    if layout is None:
        return None
    outer = {m for m, a in enumerate(layout.axes) if a is not None and a.level != level}
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
    flat = [x for g in modes for x in g if x[2] not in outer]
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
    axes: list[Axis | None] = []
    for group in modes:
        found: list[tuple[int, int, Axis | None]] = []
        for extent, axis, m in group:
            if m in outer:
                found.append((extent, step, axis))
                step *= extent
                continue
            taken = inner.get(m, 1)
            for size, key in ((extent // taken, (m, False)), (taken, (m, True))):
                if size > 1:
                    found.append((size, strides[key], None))
        found = found or [(1, 0, None)]
        shape.append(tuple(size for size, _, _ in found))
        steps.append(tuple(stride for _, stride, _ in found))
        axes += [axis for _, _, axis in found]
    assert step == prod(int(e) for e in held.shape)  # type: ignore[arg-type]
    return ShardLayout(tuple(shape), tuple(steps), tuple(axes))


def dealt(type: TensorType, mesh: Mesh, level: str) -> TensorType:
    """``type`` with what units of ``level`` do not hold in parts yet dealt out to those of
    ``mesh``, neighbours to neighbours, as far as the extents allow."""
    layout = type.layout or ShardLayout(type.shape, None, (None,) * type.rank)
    if any(a is not None and a.level == level for a in layout.axes):
        return type
    left = [a for a in mesh.at(level) if a.extent > 1]
    modes: list[tuple[int, ...]] = []
    axes: list[tuple[Axis | None, ...]] = []
    vector = max(1, VECTOR * 8 // type.dtype.bits)
    for group in reversed(layout.groups(type.shape)):
        found: list[tuple[int, Axis | None]] = []
        for m in reversed(group):
            rest = int(layout.modes[m])  # type: ignore[arg-type]
            if layout.axes[m] is not None:
                found.append((rest, layout.axes[m]))
                continue
            inner = _common(rest, vector) if left and vector > 1 else 1
            rest, vector = rest // inner, 1
            found.append((inner, None))
            while left and rest % left[-1].extent == 0:
                found.append((left[-1].extent, left[-1]))
                rest //= left.pop().extent
            found.append((rest, None))
        kept = [x for x in reversed(found) if x[0] > 1 or x[1] is not None] or [(1, None)]
        modes.append(tuple(extent for extent, _ in kept))
        axes.append(tuple(axis for _, axis in kept))
    flat = tuple(axis for group in reversed(axes) for axis in group)
    return type.with_(layout=ShardLayout(tuple(reversed(modes)), None, flat))


def _common(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` up to ``most``."""
    return max(d for d in range(1, max(1, most) + 1) if extent % d == 0)


def _unit_stride(mode: tuple[int, Axis | None, int]) -> int:
    assert mode[1] is not None
    return mode[1].stride
