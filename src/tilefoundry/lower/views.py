"""Operations that only rename elements, as views: forwards for a value that is read,
backwards for a value that is to be written in place."""

from __future__ import annotations

from collections.abc import Sequence

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.expr import Dim, IterVar, floordiv, mod, product, symbols
from tilefoundry.ir.mesh import Coord, Mesh
from tilefoundry.ir.node import Node
from tilefoundry.ir.shard import Digit
from tilefoundry.ir.types import TensorType
from tilefoundry.ops.base import seen
from tilefoundry.tir.program import View, fresh_vars

VIEWS = ("slice", "reshape", "transpose", "repeat_interleave", "pad", "local")


def fixed(shape: tuple[Dim, ...], span: Span | None) -> tuple[int, ...]:
    """``shape`` as integers; refuses an extent that is still open."""
    for extent in shape:
        if not isinstance(extent, int):
            refuse("lower-open-extent", span, extent=extent)
    return shape  # type: ignore[return-value]


def forward(node: Node, view: View) -> View:
    """The view that is the value of ``node``, whose first operand is ``view``."""
    shape = fixed(node.tensor.shape, node.span)
    match node.op.name:
        case "slice":
            return _sliced(node, view, shape)
        case "reshape":
            names = fresh_vars(shape)
            return view.through(shape, names, _reshaped(names, shape, view.shape))
        case "transpose":
            perm = _perm(node)
            names = fresh_vars(shape)
            at = {p: names[n].expr() for n, p in enumerate(perm)}
            return view.through(shape, names, tuple(at[n] for n in range(len(perm))))
        case "repeat_interleave":
            axis, count = node.attrs["axis"] % len(shape), node.attrs["repeats"]  # type: ignore[operator]
            names = fresh_vars(shape)
            at = [v.expr() for v in names]
            at[axis] = floordiv(at[axis], count)  # type: ignore[arg-type]
            return view.through(shape, names, tuple(at))
        case "pad":
            return _padded(node, view, shape)
        case "local":
            return _local(node, view, shape)
        case "reduce":
            return _single(node, view, shape)
    raise AssertionError(node)


def backward(node: Node, view: View) -> View | None:
    """Where the first operand of ``node`` goes so that the node's value is ``view``; None
    where it would have to go elsewhere."""
    shape = fixed(node.args[0].tensor.shape, node.span)
    names = fresh_vars(shape)
    match node.op.name:
        case "slice":
            strides = node.attrs.get("strides") or ()
            if any(s != 1 for s in strides):  # type: ignore[union-attr]
                return None
            starts: tuple[Dim, ...] = node.attrs["starts"]  # type: ignore[assignment]
            cut = [n for n, e in enumerate(shape) if e != view.shape[n]]
            if not all(_edge(view, n) for n in cut):
                return None
            at = tuple(v.expr() - s for v, s in zip(names, starts, strict=True))
            return view.through(shape, names, at, 0)  # elements outside are not written
        case "reshape":
            return view.through(shape, names, _reshaped(names, shape, view.shape))
        case "transpose":
            perm = _perm(node)
            at = tuple(names[p].expr() for p in perm)
            return view.through(shape, names, at)
    return None


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """``view`` repeated to ``shape`` by torch's rule."""
    if view.shape == shape:
        return view
    names = fresh_vars(shape)
    lead = len(shape) - len(view.shape)
    at = tuple(0 if extent == 1 else names[lead + n].expr() for n, extent in enumerate(view.shape))
    return view.through(shape, names, at)


def apart(a: View, b: View) -> bool:
    """The two windows of one buffer share no element, as their constant distance shows."""
    if a.starts is None or b.starts is None:
        return False
    for first, second, of_first, of_second in zip(
        a.starts, b.starts, a.extents, b.extents, strict=True
    ):
        distance = first - second
        if isinstance(distance, int) and (distance >= of_second or -distance >= of_first):
            return True
    return False


def _sliced(node: Node, view: View, shape: tuple[int, ...]) -> View:
    starts: tuple[Dim, ...] = node.attrs["starts"]  # type: ignore[assignment]
    strides: tuple[Dim, ...] = node.attrs.get("strides") or (1,) * len(shape)  # type: ignore[assignment]
    names = fresh_vars(shape)
    at = tuple(
        start + v.expr() * step for start, step, v in zip(starts, strides, names, strict=True)
    )
    return view.through(shape, names, at)


def _reshaped(
    names: tuple[IterVar, ...], shape: tuple[int, ...], other: tuple[int, ...]
) -> tuple[Dim, ...]:
    """Coordinates in ``other`` of the element at ``names`` in ``shape``, same flat order."""
    flat: Dim = 0
    for v, extent in zip(names, shape, strict=True):
        flat = flat * extent + v.expr()
    out: list[Dim] = []
    for n, extent in enumerate(other):
        inner = product(other[n + 1 :])
        at = floordiv(flat, inner)
        out.append(mod(at, extent) if n else at)
    return tuple(out)


def is_single_term(node: Node, private: str) -> bool:
    """``node`` is a reduction in memory, not in storage of each unit (``private``), of what has
    but one term where it lies: the value itself, or a partial one."""
    if node.op.name != "reduce" or node.tensor.storage == private:
        return False
    type = seen(node.args[0].tensor, node.mesh)
    if node.attrs.get("kind") == "abs_max" or type.dtype != node.tensor.dtype:
        return False
    return all(
        product(d.axis.extent for d in type.digits if d.dim == axis and type.storage != "gmem")
        == type.shape[axis]
        for axis in reduced_axes(node)
    )


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of its operand over which a reduction goes, in order."""
    rank = len(node.args[0].tensor.shape)
    return tuple(sorted(a % rank for a in node.attrs["axes"]))  # type: ignore[union-attr]


def _single(node: Node, view: View, shape: tuple[int, ...]) -> View:
    axes = reduced_axes(node)
    names = fresh_vars(shape)
    kept = iter(range(len(shape)))
    at: list[Dim] = []
    for n in range(len(view.shape)):
        gone = n in axes
        m = next(kept) if not gone or len(shape) == len(view.shape) else 0
        at.append(0 if gone else names[m].expr())
    return view.through(shape, names, tuple(at))


def _perm(node: Node) -> tuple[int, ...]:
    given: tuple[int, ...] = node.attrs["perm"]  # type: ignore[assignment]
    return tuple(p % len(given) for p in given)


def _padded(node: Node, view: View, shape: tuple[int, ...]) -> View:
    value: float = node.attrs.get("value", 0)  # type: ignore[assignment]
    if view.fill is not None and view.fill != value:
        refuse("lower-op", node.span, op="tf.pad", why="its operand is padded with another value")
    before = pad_starts(node, len(shape))
    grown = [n for n, e in enumerate(shape) if e != view.shape[n]]
    if not all(_edge(view, n) for n in grown):
        refuse("lower-op", node.span, op="tf.pad", why="it pads a part of a value, not its end")
    names = fresh_vars(shape)
    at = tuple(v.expr() - lo for v, lo in zip(names, before, strict=True))
    return view.through(shape, names, at, value)


def pad_starts(node: Node, rank: int) -> tuple[int, ...]:
    """How many elements stand before the padded value along each axis."""
    pads: tuple[int, ...] = node.attrs["pads"]  # type: ignore[assignment]
    before = [0] * rank
    for n in range(0, len(pads), 2):
        before[rank - 1 - n // 2] = pads[n]
    return tuple(before)


def _edge(view: View, axis: int) -> bool:
    """Outside the view along ``axis`` is outside the buffer."""
    var = view.vars[axis]
    found = [n for n, x in enumerate(view.index) if var in symbols(x)]
    return (
        len(found) == 1
        and view.index[found[0]] == var.expr()
        and view.buffer.shape[found[0]] == view.shape[axis]
    )


def _local(node: Node, view: View, shape: tuple[int, ...]) -> View:
    """The part of a distributed value that the executing unit holds."""
    type = node.args[0].tensor
    layout = type.layout
    names = fresh_vars(shape)
    if layout is None:
        return view.through(shape, names, tuple(v.expr() for v in names))
    at: list[Dim] = []
    for dim, group in enumerate(layout.groups(type.shape)):
        index: Dim = 0
        held = product(layout.modes[m] for m in group if layout.axes[m] is None)
        inner = held
        for mode in group:
            axis, extent = layout.axes[mode], layout.modes[mode]
            if axis is not None:
                digit: Dim = Coord(axis.name, 0, axis.extent - 1, axis=axis).expr()
            else:
                inner = floordiv(inner, extent)
                digit = mod(floordiv(names[dim].expr(), inner), extent)
            index = index * extent + digit
        at.append(index)
    return view.through(shape, names, tuple(at))


def without(index: Dim, digits: list[Digit]) -> Dim:
    """A logical index without the digits that are fixed by the unit (outermost first)."""
    for digit in digits:
        above = digit.inner * digit.axis.extent
        index = floordiv(index, above) * digit.inner + mod(index, digit.inner)
    return index


def own_digits(type: TensorType, mesh: Mesh, levels: Sequence[str]) -> list[list[Digit]]:
    """Per logical axis, the splits over axes of ``levels``, outermost first."""
    out: list[list[Digit]] = [[] for _ in type.shape]
    for digit in type.digits:
        if digit.axis.level in levels and digit.axis in mesh.axes:
            out[digit.dim].append(digit)
    return out
