"""Types as written, ``Tensor[shape, dtype(, layout)(, storage)]``, made types."""

from __future__ import annotations

from typing import Any

from tilefoundry.diag import Span, refuse
from tilefoundry.ir.dtype import DType, dtype_of
from tilefoundry.ir.expr import Dim, Expr, bounds
from tilefoundry.ir.shard import ShardLayout
from tilefoundry.ir.spec import Split, from_record, layout_from
from tilefoundry.ir.types import TensorType
from tilefoundry.lang.forms import MeshBinding, Tensor
from tilefoundry.lang.record import RecordForm
from tilefoundry.layout import ComposedLayout


def tensor_type(form: Tensor, span: Span | None, storages: tuple[str, ...]) -> TensorType:
    """The type that a written form states; refuses a form that is not one."""
    items = form.items if isinstance(form.items, tuple) else (form.items,)
    written = items[0] if items and isinstance(items[0], tuple) else items[:1]
    split = any(isinstance(x, Split) for x in written)
    places = sum(1 for x in items[2:] if isinstance(x, str))
    layouts = len(items[2:]) - places + split
    if len(items) < 2 or places > 1 or layouts > 1:
        refuse("type-form", span, found=_show(items))
    if not isinstance(items[1], (str, DType)):
        refuse("type-form", span, found=f"no element type in {_show(items)}")
    shape, dtype = _shape(items[0], span), dtype_of(items[1], span)
    layout: ShardLayout | None = layout_from(written, span) if split else None
    storage = device_memory(storages)
    for item in items[2:]:
        if isinstance(item, str):
            if item not in storages:
                refuse("storage-unknown", span, op="Tensor", storage=item, known=" ".join(storages))
            storage = item
        else:
            layout = layout_from(record_layout(item, span), span)
    if layout is not None:
        layout.groups(shape, span)
        if isinstance(items[-1], ComposedLayout) and dtype.bits % 8:
            refuse("type-form", span, found=_show(items))
        if layout.is_plain:
            layout = None
    return TensorType(shape, dtype, layout, storage)


def device_memory(storages: tuple[str, ...]) -> str:
    """The storage of a value whose place is not written, and of every result."""
    return "gmem" if "gmem" in storages else storages[0]


def record_layout(item: Any, span: Span | None) -> Any:
    """The layout that an explicit record states; anything else as it is."""
    if not isinstance(item, RecordForm):
        return item
    if not isinstance(item.mesh, MeshBinding):
        refuse("type-form", span, found=_show(item.mesh))
    return from_record(item.layout, item.attrs, item.mesh.mesh, span)


def _shape(value: Any, span: Span | None) -> tuple[Dim, ...]:
    items = value if isinstance(value, (tuple, list)) else (value,)
    out: list[Dim] = []
    for item in items:
        extent = item.extent if isinstance(item, Split) else item
        if isinstance(extent, bool) or not isinstance(extent, (int, Expr)):
            refuse("type-form", span, found=_show(item))
        if bounds(extent)[1] < 0:
            refuse("type-extent", span, extent=extent)
        out.append(extent)
    return tuple(out)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
