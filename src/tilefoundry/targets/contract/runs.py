"""Contiguous runs of a tile: how wide a unit may read and write at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilefoundry.ir.expr import Dim, multiple_of
from tilefoundry.ir.mesh import Axis
from tilefoundry.ir.types import TensorType
from tilefoundry.targets.contract.place import Place, refined


@dataclass(frozen=True)
class Piece:
    """``extent`` steps of ``inner`` elements along ``axis``; ``steps`` are the strides of such
    a step in each memory, in elements; ``unit`` the mesh axis that the step belongs to."""

    axis: int
    inner: int
    extent: int
    steps: tuple[Dim, ...]
    unit: Axis | None = None


def pieces(places: Sequence[Place], holder: Place | None = None) -> list[Piece] | None:
    """The tile cut so that each piece has one stride in every place (and lies in one mode
    of ``holder``); None where their modes do not nest."""
    out: list[Piece] = []
    both = (*places, holder) if holder is not None else tuple(places)
    for axis in range(len(places[0].modes)):
        cut = refined(both, axis)
        if cut is None:
            return None
        out += [
            Piece(axis, inner, extent, tuple(p.along(axis, inner) for p in places))
            for inner, extent in cut
        ]
    return out


@dataclass(frozen=True)
class Run:
    """``count`` elements that are next to each other in every memory; ``outer`` the pieces
    around it, and ``inner`` those inside, each fastest first."""

    count: int
    inner: tuple[Piece, ...]
    outer: tuple[Piece, ...]


def run_of(parts: Sequence[Piece]) -> Run:
    """The longest run over pieces that belong to no unit."""
    left = list(parts)
    inner: list[Piece] = []
    count = 1
    while True:
        found = next((p for p in left if p.unit is None and all(s == count for s in p.steps)), None)
        if found is None:
            return Run(count, tuple(inner), tuple(left))
        left.remove(found)
        inner.append(found)
        count *= found.extent


def width(run: Run, places: Sequence[Place], sizes: Sequence[int]) -> int:
    """The largest of ``sizes`` (bytes) in which the run may be cut, every cut aligned to its
    size in every memory; 0 where none does."""
    bits = places[0].bits
    for size in sizes:
        if run.count * bits % (size * 8) or any(size > p.chunk or p.align % size for p in places):
            continue
        if all(multiple_of(s) * bits % (size * 8) == 0 for p in run.outer for s in p.steps):
            return size
    return 0


def holder_of(type: TensorType) -> tuple[Place, list[Axis | None]]:
    """Registers as a place: the modes of each axis, and the mesh axis of each flat mode."""
    layout = type.layout
    if layout is None:
        modes = tuple(((int(e), 1),) for e in type.shape)  # type: ignore[arg-type]
        return Place(modes, type.dtype.bits), [None] * type.rank
    groups = layout.groups(type.shape)
    parts = tuple(tuple((int(layout.modes[m]), 1) for m in g) for g in groups)  # type: ignore[arg-type]
    owners = list(layout.axes) or [None] * len(layout.modes)
    return Place(parts, type.dtype.bits), owners


def held_pieces(held: TensorType, memory: Place) -> list[Piece] | None:
    """Pieces of a tile that is in registers on one side: each belongs to a mesh axis or not."""
    holder, owners = holder_of(held)
    cut = pieces([memory], holder)
    if cut is None:
        return None
    groups = held.layout.groups(held.shape) if held.layout else [
        range(n, n + 1) for n in range(held.rank)
    ]  # fmt: skip
    out: list[Piece] = []
    for p in cut:
        inner = 1
        owner: Axis | None = None
        for mode in reversed(groups[p.axis]):
            extent = holder.modes[p.axis][mode - groups[p.axis].start][0]
            if inner <= p.inner < inner * extent:
                owner = owners[mode]
                break
            inner *= extent
        out.append(Piece(p.axis, p.inner, p.extent, p.steps, owner))
    return out


@dataclass(frozen=True)
class Pieces:
    """A copy between two memories in pieces of ``size`` bytes, shared among ``units``.

    Unit u takes the pieces u, u + units, u + 2 · units, ..., so that neighbouring units touch
    neighbouring memory of the side that the order follows. ``inner`` are the steps inside a
    piece and ``outer`` those from piece to piece, each fastest first.
    """

    size: int
    inner: tuple[Piece, ...]
    outer: tuple[Piece, ...]
    rank: int
    units: int

    @property
    def count(self) -> int:
        return _total(self.outer)

    @property
    def elements(self) -> int:
        """Elements of one piece."""
        return _total(self.inner)

    @property
    def rounds(self) -> int:
        """Pieces of the busiest unit."""
        return -(-self.count // self.units)

    @property
    def repeat(self) -> tuple[int, ...]:
        return (1,) * self.rank

    def element(self, number: int, n: int = 0) -> tuple[int, ...]:
        """The tile's coordinate of element ``n`` of piece ``number``."""
        at = [0] * self.rank
        for steps, index in ((self.inner, n), (self.outer, number)):
            for p in steps:
                at[p.axis] += index % p.extent * p.inner
                index //= p.extent
        return tuple(at)

    def text(self) -> str:
        return f"vector={self.size}B pieces={self.count} rounds={self.rounds}"


def _total(parts: Sequence[Piece]) -> int:
    total = 1
    for p in parts:
        total *= p.extent
    return total


def cut(run: Run, count: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """The run's first ``count`` elements, and the pieces around them, fastest first."""
    inner: list[Piece] = []
    rest: list[Piece] = []
    for p in run.inner:
        take = min(p.extent, count)
        count //= take
        if take > 1:
            inner.append(Piece(p.axis, p.inner, take, p.steps, p.unit))
        if take < p.extent:
            steps = tuple(s * take for s in p.steps)
            rest.append(Piece(p.axis, p.inner * take, p.extent // take, steps, p.unit))
    return tuple(inner), (*rest, *run.outer)


def shared_pieces(
    places: Sequence[Place], order: int, sizes: Sequence[int], units: int
) -> Pieces | None:
    """Both memories cut into pieces of the largest of ``sizes`` that fits, in the order of
    the memory ``order``; None where no size fits."""
    parts = pieces(places)
    if parts is None:
        return None
    run = run_of(parts)
    size = width(run, places, sizes)
    if not size:
        return None
    inner, outer = cut(run, max(1, size * 8 // places[0].bits))
    follow = sorted(outer, key=lambda p: _known(p.steps[order]))
    return Pieces(size, inner, tuple(follow), len(places[0].modes), units)


def _known(step: Dim) -> float:
    return step if isinstance(step, int) else float("inf")
