"""Reshards within device memory that move nothing: they only say which unit holds what."""

from __future__ import annotations

from tilefoundry.ir.node import ITEM, Node
from tilefoundry.ir.types import TensorType


def is_rename(node: Node) -> bool:
    """``node`` is a reshard within device memory and its operand lies there as it says.

    A layout that binds no unit says how the elements lie. A padded, transposed or cut value
    lies otherwise, although its type names no strides: it is copied.
    """
    if node.op.name != "reshard" or node.tensor.storage != "gmem":
        return False
    source = node.args[0].tensor
    if source.storage != "gmem" or source.partial:
        return False
    if _strides(source) != _strides(node.tensor):
        return False
    stated = node.attrs.get("layout")
    arranged = stated is not None and not any(stated.axes)  # type: ignore[attr-defined]
    return not arranged or _strides(source) is not None or _in_order(node.args[0])


def _strides(type: TensorType) -> object:
    """What a type says about addresses (row by row: None)."""
    layout = type.layout
    if layout is None or (layout.strides is None and layout.swizzle is None and not layout.offset):
        return None
    return layout.modes, layout.strides, layout.swizzle, layout.offset


def _in_order(value: Node) -> bool:
    """The elements of ``value`` lie one after another, row by row, through the views of it."""
    while True:
        name = value.op.name
        if value.op is ITEM:
            value = value.args[0]
            if value.op.name != "split":
                return True
            if not _is_run(value.args[0].tensor, value.type.items[0]):  # type: ignore[union-attr]
                return False
        elif name == "slice":
            steps = value.attrs.get("strides") or ()
            if any(s != 1 for s in steps):  # type: ignore[union-attr]
                return False
            if not _is_run(value.args[0].tensor, value.tensor):
                return False
        elif name == "transpose":
            shape = value.args[0].tensor.shape
            perm = [p % len(shape) for p in value.attrs["perm"]]  # type: ignore[union-attr]
            moved = [p for p in perm if shape[p] != 1]
            if moved != sorted(moved):
                return False
        elif name in ("pad", "repeat_interleave", "local"):
            if value.tensor.shape != value.args[0].tensor.shape:
                return False
        elif name != "reshape" and not is_rename(value):
            return _strides(value.tensor) is None
        value = value.args[0]


def _is_run(whole: TensorType, part: TensorType) -> bool:
    """A window of the shape of ``part`` is one run of the elements of ``whole``."""
    cut = [n for n, e in enumerate(whole.shape) if part.shape[n] != e]
    return all(e == 1 for e in part.shape[: cut[-1]]) if cut else True
