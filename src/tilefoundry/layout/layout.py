"""``Layout``: coordinate to offset; ``ComposedLayout``: with an offset and a swizzle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilefoundry.diag import refuse
from tilefoundry.layout import inttuple
from tilefoundry.layout.inttuple import IntTuple, Leaf, compact_strides, congruent, is_tuple
from tilefoundry.layout.swizzle import Swizzle

_NOT_INTEGERS = (bool, float, complex, str, bytes, list)


def _check_leaves(what: str, t: IntTuple) -> None:
    for leaf in inttuple.flatten(t):
        negative = isinstance(leaf, int) and leaf < 0
        number = hasattr(leaf, "__mul__") and not isinstance(leaf, _NOT_INTEGERS)
        if negative or not number:
            value = f"{leaf!r}"
            refuse("layout-extent", what=what, value=value, whole=inttuple.text(t))


@dataclass(frozen=True, init=False, repr=False, slots=True)
class Layout:
    """A function from coordinates of ``shape`` to offsets, in elements.

    ``strides`` nest as ``shape``; omitted, they are compact row-major. Leaves
    are non-negative ints or integer-like symbols. The offset of a coordinate is
    the sum of coordinate times stride; an index stands for the coordinate it
    decomposes to, last mode fastest.
    """

    shape: IntTuple
    strides: IntTuple

    def __init__(self, shape: IntTuple, strides: IntTuple | None = None) -> None:
        _check_leaves("extent", shape)
        if strides is None:
            strides = compact_strides(shape)
        else:
            _check_leaves("stride", strides)
            if not congruent(shape, strides):
                refuse(
                    "layout-congruence",
                    shape=inttuple.text(shape),
                    strides=inttuple.text(strides),
                )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "strides", strides)

    def __call__(self, *coordinate: IntTuple) -> Any:
        """The offset of ``L(index)``, ``L(i, j)`` or ``L((i, j))``; refuses what lies outside."""
        crd = coordinate[0] if len(coordinate) == 1 else coordinate
        return inttuple.crd2idx(crd, self.shape, self.strides)

    def size(self) -> Any:
        """Number of coordinates."""
        return inttuple.size(self.shape)

    def cosize(self) -> Any:
        """One more than the largest offset; 0 when there is no coordinate."""
        total: Any = 1
        for extent, stride in self.leaves():
            if isinstance(extent, int) and extent == 0:
                return 0
            total = total + (extent + -1) * stride
        return total

    @property
    def rank(self) -> int:
        """Number of top-level modes."""
        return inttuple.rank(self.shape)

    @property
    def depth(self) -> int:
        """Nesting depth; 0 for a single unnested mode."""
        return inttuple.depth(self.shape)

    def leaves(self) -> tuple[tuple[Any, Any], ...]:
        """``(extent, stride)`` of each leaf mode, left to right."""
        shape, strides = inttuple.flatten(self.shape), inttuple.flatten(self.strides)
        return tuple(zip(shape, strides, strict=True))

    def __iter__(self) -> Iterator[Layout]:
        """The top-level modes as layouts."""
        shape, strides = self.shape, self.strides
        if is_tuple(shape) and is_tuple(strides):
            return iter([Layout(s, d) for s, d in zip(shape, strides, strict=True)])
        return iter([self])

    def __getitem__(self, mode: int | slice) -> Layout:
        """Mode ``mode`` as a layout, or a run of modes as one of their rank."""
        modes = tuple(self)
        if isinstance(mode, slice):
            return of_modes(modes[mode])
        if not -len(modes) <= mode < len(modes):
            refuse("layout-mode", mode=mode, layout=self, rank=len(modes))
        return modes[mode]

    def flatten(self) -> Layout:
        """The same function with all leaf modes at the top level."""
        return from_leaves(self.leaves()) if is_tuple(self.shape) else self

    def coalesce(self) -> Layout:
        """The shortest flat layout with the same offset at every index.

        Modes of extent 1 are dropped, a mode is joined to the next one where its
        stride continues it. A single mode that is left is unnested: ``256:1``.
        """
        merged: list[tuple[Any, Any]] = []
        for extent, stride in reversed(self.leaves()):
            if _equals(extent, 1):
                continue
            if merged and _equals(stride, merged[-1][0] * merged[-1][1]):
                merged[-1] = (extent * merged[-1][0], merged[-1][1])
            else:
                merged.append((extent, stride))
        merged.reverse()
        if not merged:
            return Layout(1, 0)
        return Layout(*merged[0]) if len(merged) == 1 else from_leaves(tuple(merged))

    def constants(self) -> tuple[tuple[int, int], ...]:
        """:meth:`leaves`, all of them numbers; refuses symbols."""
        for extent, stride in self.leaves():
            for leaf in (extent, stride):
                if not isinstance(leaf, int):
                    refuse("layout-symbolic", layout=self, symbol=leaf)
        return self.leaves()

    def offsets(self) -> list[int]:
        """The offset at each index, in row-major order."""
        found = [0]
        for extent, stride in self.constants():
            found = [base + i * stride for base in found for i in range(extent)]
        return found

    def is_compact(self) -> bool:
        """Whether the strides are those of the dense row-major arrangement."""
        return self.strides == compact_strides(self.shape)

    def is_injective(self) -> bool:
        """Whether no two coordinates share an offset (exact, without listing them)."""
        if self.is_compact():
            return True
        modes = sorted(((d, s) for s, d in self.constants() if s != 1), reverse=True)
        if any(s == 0 for _, s in modes):
            return True
        # Two coordinates collide where a difference vector, |x_k| < s_k and not
        # zero, has sum(x_k d_k) = 0. From the largest stride down, only partial
        # sums that the smaller strides can still cancel are kept.
        reach = sum((s - 1) * d for d, s in modes)
        partial: set[int] = set()
        for d, s in modes:
            if d == 0:
                return False
            reach -= (s - 1) * d
            following: set[int] = set()
            for start in partial:
                low = max(-(s - 1), -((reach + start) // d))
                high = min(s - 1, (reach - start) // d)
                following.update(start + x * d for x in range(low, high + 1))
            # The first non-zero x may be taken positive.
            following.update(x * d for x in range(1, min(s - 1, reach // d) + 1))
            partial = following
        return 0 not in partial

    def is_bijective(self) -> bool:
        """Whether the offsets are exactly ``[0, size)``, each once."""
        return self.is_compact() or (self.is_injective() and self.cosize() == self.size())

    def __add__(self, offset: Leaf) -> ComposedLayout:
        """The layout moved by ``offset`` elements."""
        return ComposedLayout(None, offset, self)

    def __or__(self, swizzle: object) -> ComposedLayout:
        """The layout with its byte addresses permuted by ``swizzle``."""
        if not isinstance(swizzle, Swizzle):
            refuse("layout-swizzle", swizzle=swizzle, nearest="Swizzle(3, 4, 3)")
        return ComposedLayout(swizzle, 0, self)

    def __repr__(self) -> str:
        """As the language writes it; strides are left out where a flat shape is compact."""
        shape, strides = inttuple.text(self.shape), inttuple.text(self.strides)
        plain = self.depth <= 1 and self.is_compact()
        return f"Layout({shape})" if plain else f"Layout({shape}, {strides})"


@dataclass(frozen=True, repr=False, slots=True)
class ComposedLayout:
    """``swizzle`` after ``offset`` after ``layout``.

    The offset counts elements; the swizzle, where there is one, permutes the
    full byte address of ``offset + layout(coordinate)``.
    """

    swizzle: Swizzle | None
    offset: Leaf
    layout: Layout

    def __post_init__(self) -> None:
        if is_tuple(self.offset):
            whole = inttuple.text(self.offset)
            refuse("layout-extent", what="offset", value=whole, whole=whole)
        _check_leaves("offset", self.offset)

    @property
    def shape(self) -> IntTuple:
        """The shape of the inner layout."""
        return self.layout.shape

    @property
    def rank(self) -> int:
        """Number of top-level modes."""
        return self.layout.rank

    def size(self) -> Any:
        """Number of coordinates."""
        return self.layout.size()

    def linear(self, *coordinate: IntTuple) -> Any:
        """``offset + layout(coordinate)``, in elements, before any swizzle."""
        return self.layout(*coordinate) + self.offset

    def __call__(self, *coordinate: IntTuple) -> Any:
        """The offset in elements; refused where a swizzle needs the element's width."""
        if self.swizzle is not None:
            refuse("layout-swizzle-width", layout=self)
        return self.linear(*coordinate)

    def byte_address(self, coordinate: IntTuple, itemsize_bits: int, base: int = 0) -> int:
        """The byte of an element of ``itemsize_bits`` in a buffer that starts at ``base``.

        ``base`` takes part in the swizzle. Elements narrower than a byte share it.
        """
        linear = base + self.linear(coordinate) * itemsize_bits // 8
        return linear if self.swizzle is None else self.swizzle(linear)

    def address(self, index: IntTuple, itembytes: int, base: int = 0) -> int:
        """The byte address of the element at ``index``, ``itembytes`` wide."""
        return self.byte_address(index, itembytes * 8, base)

    def is_injective(self) -> bool:
        """Whether no two coordinates share an address: a swizzle is a permutation."""
        return self.layout.is_injective()

    def __add__(self, offset: Leaf) -> ComposedLayout:
        """Moved by ``offset`` more elements; refused once swizzled."""
        if self.swizzle is not None:
            refuse(
                "layout-swizzle-order",
                found=f"({self}) + {offset}",
                expected=f"{self.layout} + {self.offset + offset} | {self.swizzle}",
            )
        return ComposedLayout(None, self.offset + offset, self.layout)

    def __or__(self, swizzle: object) -> ComposedLayout:
        """With its byte addresses permuted by ``swizzle``; one swizzle at most."""
        if not isinstance(swizzle, Swizzle):
            refuse("layout-swizzle", swizzle=swizzle, nearest="Swizzle(3, 4, 3)")
        if self.swizzle is not None:
            refuse(
                "layout-swizzle-order",
                found=f"{self} | {swizzle}",
                expected=str(ComposedLayout(swizzle, self.offset, self.layout)),
            )
        return ComposedLayout(swizzle, self.offset, self.layout)

    def record(self) -> str:
        """The explicit form ``ComposedLayout(swizzle, offset, layout)``."""
        return f"ComposedLayout({self.swizzle}, {self.offset}, {self.layout})"

    def __repr__(self) -> str:
        """As the language writes it: ``Layout(...) + 16 | Swizzle(3, 4, 3)``."""
        moved = self.swizzle is None or not _equals(self.offset, 0)
        offset = f" + {self.offset}" if moved else ""
        swizzle = f" | {self.swizzle}" if self.swizzle is not None else ""
        return f"{self.layout}{offset}{swizzle}"


def _equals(a: Any, b: Any) -> bool:
    return bool(a == b)


def of_modes(modes: tuple[Layout, ...]) -> Layout:
    """The layout whose top-level modes are ``modes``."""
    return Layout(tuple(m.shape for m in modes), tuple(m.strides for m in modes))


def from_leaves(leaves: tuple[tuple[Any, Any], ...]) -> Layout:
    """The flat layout of ``(extent, stride)`` modes."""
    return Layout(tuple(s for s, _ in leaves), tuple(d for _, d in leaves))
