"""Whether a tile lies as an instruction's pattern says: fragments in registers, canonical
layouts in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilefoundry.ir.expr import multiple_of, symbols
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.spec import layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.layout import Layout
from tilefoundry.targets.contract.pattern import (
    Env,
    FragmentPattern,
    MmaAtom,
    SharedPattern,
    value_of,
)
from tilefoundry.targets.contract.place import Place, Window, panel_layouts, panels, place

SPANS: Mapping[tuple[int, int, int] | None, int] = {
    None: 16,
    (1, 4, 3): 32,
    (2, 4, 3): 64,
    (3, 4, 3): 128,
}
"""Swizzle to span in bytes (PTX ISA, matrix descriptor swizzling modes)."""


@dataclass(frozen=True)
class Groups:
    """How a mesh meets an execution mesh: atom axes, and the group axes in front."""

    atom: tuple[Axis, ...]
    groups: tuple[Axis, ...]
    base: int


# Registers


def match_fragment(
    pattern: FragmentPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    groups: Groups,
    env: Env,
    bound: dict[Axis, tuple[int, int]],
    dims: tuple[int, int],
) -> str | None:
    """None if each unit of the atom's mesh holds what the instruction puts there.

    Splits over group axes are *bind*: different groups do different repeats. Their digit
    must step over whole atoms, and all operands must bind a group to the same digit.
    """
    want = {(groups.atom[axis], dim): inner for axis, dim, inner in _digits(pattern, env)}
    for digit in tile.digits:
        key = (digit.axis, digit.dim)
        if digit.axis in groups.atom:
            if want.pop(key, None) != digit.inner:
                return f"{digit.axis.name} holds a digit of axis {digit.dim} over {digit.inner}"
            continue
        if digit.axis not in groups.groups:
            return f"split over {digit.axis.name}, which is not of the executing mesh"
        if not isinstance(digit.inner, int) or digit.inner % atom[digit.dim]:
            return f"{digit.axis.name} splits inside an atom (over {digit.inner})"
        mine = dims[digit.dim], digit.inner
        if bound.setdefault(digit.axis, mine) != mine:
            return f"{digit.axis.name} is bound to another part of the tile by another operand"
    if want:
        axis, dim = next(iter(want))
        return f"not split over {axis.name} along axis {dim}"
    return None


def _digits(pattern: FragmentPattern, env: Env) -> Iterator[tuple[int, int, int]]:
    """(atom-mesh axis, logical axis, inner) of each bound mode."""
    sizes = [value_of(x, env) for x in pattern.shape]
    for dim, modes in enumerate((range(pattern.rows), range(pattern.rows, len(sizes)))):
        inner = 1
        for mode in reversed(modes):
            axis = pattern.axes[mode]
            if axis is not None:
                yield axis, dim, inner
            inner *= sizes[mode]


def fragment_text(
    pattern: FragmentPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    groups: Groups,
    env: Env,
    dims: tuple[int, int],
) -> str:
    """The layout of the whole tile, to be pasted: groups share m, in front of its modes, and
    hold all of an operand that has no m."""
    sizes = [value_of(x, env) for x in pattern.shape]
    cut = pattern.rows
    words = [
        f"{size} @ compute.{groups.atom[axis].name}" if axis is not None else str(size)
        for size, axis in zip(sizes, pattern.axes, strict=True)
    ]
    shared = groups.groups if dims[0] == 0 else ()
    lead = [f"{g.extent} @ compute.{g.name}" for g in shared]
    rows, columns = tile.shape
    held = atom[0]
    for g in shared:
        held *= g.extent
    if isinstance(rows, int) and rows % held == 0 and rows // held > 1:
        lead.append(str(rows // held))
    tail: list[str] = []
    if isinstance(columns, int) and columns // atom[1] > 1:
        tail.append(str(columns // atom[1]))
    return f"({', '.join([*lead, *words[:cut], *tail, *words[cut:]])})"


def bound_text(
    pattern: FragmentPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    groups: Groups,
    env: Env,
    dims: tuple[int, int],
    bound: Mapping[Axis, tuple[int, int]],
) -> str:
    """:func:`fragment_text` where the operands' splits over groups are known: of (m, n, k) which,
    and over how many of its elements."""
    sizes = [value_of(x, env) for x in pattern.shape]
    words = [
        f"{size} @ compute.{groups.atom[axis].name}" if axis is not None else str(size)
        for size, axis in zip(sizes, pattern.axes, strict=True)
    ]
    out: list[str] = []
    parts = (words[: pattern.rows], words[pattern.rows :])
    for dim, extent, held, modes in zip(dims, tile.shape, atom, parts, strict=True):
        outer: list[str] = []
        here = sorted((inner, axis.extent, axis.name) for axis, (n, inner) in bound.items()
                      if n == dim)  # fmt: skip
        for inner, units, name in here:
            outer += [str(inner // held)] if inner > held else []
            outer.append(f"{units} @ compute.{name}")
            held = inner * units
        if isinstance(extent, int) and extent > held:
            outer.append(str(extent // held))
        out += [*reversed(outer), *modes]
    return f"({', '.join(out)})"


# Shared memory


def match_shared(
    pattern: SharedPattern,
    tile: TensorType,
    atom: tuple[int, ...],
    env: Env,
    window: Window | None = None,
    align: int = 1,
) -> Mapping[str, int] | None:
    """The pattern's variables if every atom of the tile lies as the pattern says, else None.

    Variables are read off single steps of the tile's layout and then every element of every
    atom is compared, so nothing is assumed of how the layout was written.
    """
    layout = tile.layout
    offsets = place(tile, window)
    if isinstance(offsets, str) or offsets.align % align:
        return None
    if layout is not None and layout.split_axes:
        return None
    swizzle = offsets.swizzle
    key = None if swizzle is None else (swizzle.B, swizzle.M, swizzle.S)
    span = SPANS.get(key)
    if span is None or span not in pattern.spans:
        return None
    width = span * 8 // tile.dtype.bits
    if span > min(SPANS.values()) and not _in_phase(offsets, width):
        return None
    bound: dict[str, Any] = {**env, "W": width}
    if not _solve(pattern, atom, offsets, bound):
        return None
    for left, right in pattern.equal:
        if value_of(left, bound) != value_of(right, bound):
            return None
    for name, unit in pattern.multiples:
        if bound[name] % value_of(unit, bound):
            return None
    if not _on_blocks(pattern.block, tile, atom, offsets):
        return None
    shape = tuple(tuple(value_of(x, bound) for x in group) for group in pattern.shape)
    steps = tuple(tuple(value_of(x, bound) for x in group) for group in pattern.strides)
    for dim, extent in enumerate(tile.shape):  # offsets add up over the axes
        wanted = [_nested(i, shape[dim], steps[dim]) for i in range(atom[dim])]
        for base in range(0, int(extent), atom[dim]):  # type: ignore[arg-type]
            start = offsets.along(dim, base)
            for i, want in enumerate(wanted):
                if offsets.along(dim, base + i) - start != want:
                    return None
    return {k: bound[k] for k in ("W", "l", "s", "r") if k in bound}


def _on_blocks(block: int, tile: TensorType, atom: tuple[int, ...], at: Place) -> bool:
    """Whether each atom starts at a multiple of ``block`` bytes of the buffer."""
    if block == 1:
        return True
    unit = block * 8 // at.bits
    starts = [
        at.along(dim, base)
        for dim, extent in enumerate(tile.shape)
        for base in range(0, int(extent), atom[dim])  # type: ignore[arg-type]
    ]
    return all(multiple_of(x) % unit == 0 for x in (at.base, *starts))


def _in_phase(at: Place, width: int) -> bool:
    """Whether the tile starts in the first row of a swizzle's pattern, 8 rows of ``width``
    elements, as a descriptor without base offset supposes (PTX ISA, matrix descriptor)."""
    run = max((e for axis in at.modes for e, step in axis if step == 1), default=1)
    shifted = at.shift % (8 * width) == 0 or at.shift + run <= width
    return at.coarse % (8 * width) == 0 and shifted


def _solve(
    pattern: SharedPattern, atom: tuple[int, ...], offsets: Place, bound: dict[str, Any]
) -> bool:
    """Bind unknown extents from the atom's extents, unknown strides from single steps."""
    for dim, (group, steps) in enumerate(zip(pattern.shape, pattern.strides, strict=True)):
        known = 1
        open_extent: str | None = None
        for extent in group:
            missing = [s.name for s in symbols(extent) if s.name not in bound]
            if missing:
                open_extent = missing[0]
            else:
                known *= value_of(extent, bound)
        if open_extent is not None:
            if known == 0 or atom[dim] % known:
                return False
            bound[open_extent] = atom[dim] // known
        inner = 1
        for extent, step in zip(reversed(group), reversed(steps), strict=True):
            size = value_of(extent, bound)
            for symbol in symbols(step):
                if symbol.name not in bound:
                    bound[symbol.name] = offsets.along(dim, inner) if size > 1 else 0
            inner *= size
        if inner != atom[dim]:
            return False
    return True


def _nested(index: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> int:
    total = 0
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        total += index % extent * step
        index //= extent
    return total


def fast_axis(pattern: SharedPattern) -> int:
    """The axis that is contiguous in the pattern."""
    return 0 if pattern.strides[0][-1] == 1 else 1


def shared_text(
    pattern: SharedPattern, tile: TensorType, atom: tuple[int, ...], env: Env
) -> str:  # fmt: skip
    """A layout of the whole tile that meets the pattern, to be pasted: atom after atom where
    the pattern says all of how one lies, else the widest panels that do; where none does,
    the widest that the tile divides into."""
    shape = [int(e) for e in tile.shape]  # type: ignore[arg-type]
    packed = _packed(pattern, shape, atom, env)
    if packed is not None:
        return str(packed)
    for _, made in panel_layouts(shape, tile.dtype.bits, fast_axis(pattern)):
        use = tile.with_(layout=layout_from(made))
        if match_shared(pattern, use, atom, env) is not None:
            return str(made)
    return panels(shape, tile.dtype.bits, fast_axis(pattern), max(pattern.spans))


def _packed(
    pattern: SharedPattern, shape: Sequence[int], atom: tuple[int, ...], env: Env
) -> Layout | None:
    """Atoms one after another, the first axis that is counted inside a panel innermost: k
    for B, m for A and C; None for a pattern with distances to choose, or a broken tile."""
    parts = [*pattern.shape, *pattern.strides]
    if any(s.name not in env for group in parts for x in group for s in symbols(x)):
        return None
    if any(extent % size for extent, size in zip(shape, atom, strict=True)):
        return None
    count = [extent // size for extent, size in zip(shape, atom, strict=True)]
    steps = [atom[0] * atom[1], atom[0] * atom[1] * count[0]]
    modes: list[Any] = []
    strides: list[Any] = []
    for dim in range(2):
        inside = [
            (value_of(e, env), value_of(d, env))
            for e, d in zip(pattern.shape[dim], pattern.strides[dim], strict=True)
        ]
        every = [m for m in ((count[dim], steps[dim]), *inside) if m[0] > 1] or [(1, 0)]
        modes.append(every[0][0] if len(every) == 1 else tuple(e for e, _ in every))
        strides.append(every[0][1] if len(every) == 1 else tuple(d for _, d in every))
    return Layout(tuple(modes), tuple(strides))


def shared_layouts(
    atom: MmaAtom, name: str, tile: TensorType, parameters: Mapping[str, Any]
) -> tuple[str, ...]:
    """Every layout in panels that operand ``name`` may have in shared memory under
    ``parameters``, by dtype, major and tile, the widest swizzle first."""
    env = atom.completed(parameters, tile.dtype.bits)
    pattern = atom.operand(name, env)
    shape = [int(e) for e in tile.shape]  # type: ignore[arg-type]
    size = tuple(value_of(x, env) for x in pattern.shape)
    out: list[str] = []
    for arrangement in pattern.arrangements:
        if not isinstance(arrangement, SharedPattern):
            continue
        for _, made in panel_layouts(shape, tile.dtype.bits, fast_axis(arrangement)):
            use = tile.with_(layout=layout_from(made))
            if match_shared(arrangement, use, size, env) is not None and str(made) not in out:
                out.append(str(made))
    return tuple(out)
