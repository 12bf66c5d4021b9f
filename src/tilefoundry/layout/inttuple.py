"""Nested tuples of integers: shapes, strides, coordinates.

Anything that is not a tuple is a leaf: an ``int``, or an integer-like symbol
(an extent of a later IR) that answers ``+ * // % ==``, an int on either side.
Row-major throughout: the last mode is the fastest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tilefoundry.diag import refuse

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class Leaf(Protocol):
    """An integer, or a symbol standing for one."""

    def __add__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...


IntTuple: TypeAlias = Leaf | tuple["IntTuple", ...]
"""A leaf or a tuple of these, to any depth."""


def is_tuple(t: IntTuple) -> TypeIs[tuple[IntTuple, ...]]:
    """Whether ``t`` is an inner node; all else is a leaf."""
    return isinstance(t, tuple)


def rank(t: IntTuple) -> int:
    """Number of top-level modes; a leaf has one."""
    return len(t) if is_tuple(t) else 1


def depth(t: IntTuple) -> int:
    """Nesting depth: 0 for a leaf, 1 for a flat tuple."""
    return 1 + max(map(depth, t), default=0) if is_tuple(t) else 0


def flatten(t: IntTuple) -> tuple[Any, ...]:
    """The leaves of ``t``, left to right."""
    if not is_tuple(t):
        return (t,)
    return tuple(leaf for mode in t for leaf in flatten(mode))


def unflatten(flat: tuple[Any, ...], like: IntTuple) -> IntTuple:
    """The leaves ``flat`` arranged as ``like``; refuses another number of leaves."""
    if len(flat) != len(flatten(like)):
        refuse("layout-congruence", strides=text(flat), shape=text(like))
    leaves = iter(flat)

    def build(node: IntTuple) -> IntTuple:
        return tuple(map(build, node)) if is_tuple(node) else next(leaves)

    return build(like)


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``a`` and ``b`` nest alike (leaf against leaf, rank against rank)."""
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(map(congruent, a, b))
    return is_tuple(a) == is_tuple(b)


def product(t: IntTuple) -> Any:
    """The product of all leaves; 1 for the empty tuple."""
    leaves = flatten(t)
    result: Any = leaves[0] if leaves else 1
    for leaf in leaves[1:]:
        result = result * leaf
    return result


def size(shape: IntTuple) -> Any:
    """Number of coordinates of ``shape``."""
    return product(shape)


def compact_strides(shape: IntTuple) -> IntTuple:
    """Strides of the dense row-major arrangement of ``shape``, nested alike."""
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(flatten(shape)):
        strides.append(step)
        step = extent if isinstance(step, int) and step == 1 else step * extent
    return unflatten(tuple(reversed(strides)), shape)


def idx2crd(index: Any, shape: IntTuple) -> IntTuple:
    """The coordinate (nested as ``shape``) of a row-major ``index``.

    Refuses an index outside ``[0, size)`` when both are numbers.
    """
    _within(index, shape)
    return _decompose(index, shape)


def _decompose(index: Any, shape: IntTuple) -> IntTuple:
    if not is_tuple(shape):
        return index
    coordinate: list[IntTuple] = []
    for mode in reversed(shape[1:]):
        extent = product(mode)
        coordinate.append(_decompose(index % extent, mode))
        index = index // extent
    if shape:  # the slowest mode takes what is left
        coordinate.append(_decompose(index, shape[0]))
    return tuple(reversed(coordinate))


def crd2idx(coordinate: IntTuple, shape: IntTuple, strides: IntTuple | None = None) -> Any:
    """The offset of ``coordinate``: the sum of coordinate times stride.

    A leaf of the coordinate over a nested mode is a row-major index into that
    mode. Strides omitted are compact row-major. Refuses a coordinate outside
    the shape, or of another structure.
    """
    return _offset(coordinate, shape, compact_strides(shape) if strides is None else strides)


def _offset(coordinate: IntTuple, shape: IntTuple, strides: IntTuple) -> Any:
    if not is_tuple(coordinate):
        _within(coordinate, shape)
        if not is_tuple(shape):
            return coordinate * strides
        if rank(shape) == 0:
            return 0
        coordinate = _decompose(coordinate, shape)
    if not is_tuple(coordinate) or not is_tuple(shape) or not is_tuple(strides):
        refuse("layout-coordinate", coordinate=text(coordinate), shape=text(shape))
    if len(coordinate) != len(shape):
        refuse("layout-coordinate", coordinate=text(coordinate), shape=text(shape))
    total: Any = 0
    for c, s, d in zip(coordinate, shape, strides, strict=True):
        total = total + _offset(c, s, d)
    return total


def _within(index: Any, shape: IntTuple) -> None:
    extent = product(shape)
    if isinstance(index, int) and isinstance(extent, int) and not 0 <= index < extent:
        refuse("layout-coordinate", coordinate=index, shape=text(shape))


def text(t: IntTuple) -> str:
    """``t`` as the language writes it: ``((2, 8), 16)``, ``(8,)``."""
    if not is_tuple(t):
        return str(t)
    inner = ", ".join(map(text, t))
    return f"({inner},)" if len(t) == 1 else f"({inner})"
