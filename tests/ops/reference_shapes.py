"""What the shape, index, convolution and einsum operations compute, in numpy.

Each function takes the operands (None: left out) and the attributes, and works by
numpy's own means or by plain loops over elements; floats arrive as float64.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[Any]
Attrs = Mapping[str, Any]


def reshape(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    shape = list(attrs["new_shape"])
    if -1 in shape:
        others = int(np.prod([e for e in shape if e != -1], dtype=int))
        shape[shape.index(-1)] = x.size // others
    out = np.empty(shape, x.dtype)
    out.flat[:] = list(x.flat)
    return out


def transpose(args: Arrays, attrs: Attrs) -> Any:
    return np.transpose(args[0], attrs["perm"])


def concat(args: Arrays, attrs: Attrs) -> Any:
    return np.concatenate(list(args), axis=attrs.get("axis", 0))


def stack(args: Arrays, attrs: Attrs) -> Any:
    return np.stack(list(args), axis=attrs.get("axis", 0))


def split(args: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    (x,) = args
    given, axis = attrs["num_splits"], attrs.get("axis", 0)
    where = given if isinstance(given, int) else np.cumsum(given)[:-1]
    return tuple(np.split(x, where, axis=axis))


def repeat_interleave(args: Arrays, attrs: Attrs) -> Any:
    return np.repeat(args[0], attrs["repeats"], axis=attrs["axis"])


def index_select(args: Arrays, attrs: Attrs) -> Any:
    x, index = args
    dim, fill = attrs["dim"] % x.ndim, attrs.get("fill_value")
    rows = np.moveaxis(x, dim, 0)
    out = np.empty((index.size, *rows.shape[1:]), x.dtype)
    for n, i in enumerate(np.ravel(index).astype(int)):
        out[n] = rows[i] if fill is None or 0 <= i < len(rows) else fill
    out = out.reshape(*index.shape, *rows.shape[1:])
    order = range(index.ndim), range(dim, dim + index.ndim)
    return np.moveaxis(out, *map(list, order))


def gather(args: Arrays, attrs: Attrs) -> Any:
    x, index = args
    axis = attrs["axis"] % x.ndim
    out = np.empty(index.shape, x.dtype)
    for at in np.ndindex(*index.shape):
        out[at] = x[(*at[:axis], int(index[at]), *at[axis + 1 :])]
    return out


def index_add(args: Arrays, attrs: Attrs) -> Any:
    dst, index, src = args
    out = np.moveaxis(dst.copy(), attrs["dim"], 0)
    for i, row in zip(index.astype(int), np.moveaxis(src, attrs["dim"], 0), strict=True):
        out[i] += row
    return np.moveaxis(out, 0, attrs["dim"])


def index_copy(args: Arrays, attrs: Attrs) -> Any:
    dst, index, src = args
    out = np.moveaxis(dst.copy(), attrs["dim"], 0)
    for i, row in zip(index.astype(int), np.moveaxis(src, attrs["dim"], 0), strict=True):
        out[i] = row
    return np.moveaxis(out, 0, attrs["dim"])


def scatter_add(args: Arrays, attrs: Attrs) -> Any:
    dst, index, src = args
    axis = attrs["axis"] % dst.ndim
    out = dst.copy()
    for at in np.ndindex(*index.shape):
        out[(*at[:axis], int(index[at]), *at[axis + 1 :])] += src[at]
    return out


def cache_update(args: Arrays, attrs: Attrs) -> Any:
    """For shapes that differ on the sequence axis."""
    cache, new, cur_pos = args
    axis = next(n for n in range(cache.ndim) if cache.shape[n] != new.shape[n])
    starts = np.broadcast_to(np.ravel(cur_pos).astype(int), (cache.shape[0],)) if axis else None
    out = cache.copy()
    for at in np.ndindex(*new.shape):
        start = int(np.ravel(cur_pos)[0]) if starts is None else int(starts[at[0]])
        out[(*at[:axis], start + at[axis], *at[axis + 1 :])] = new[at]
    return out


def pad(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    pads = list(attrs["pads"])
    pairs = [(pads[n], pads[n + 1]) for n in range(0, len(pads), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return np.pad(x, widths, constant_values=attrs.get("value", 0)) if x.ndim else x


def conv(args: Arrays, attrs: Attrs) -> Any:
    """Any number of spatial axes, one product at a time."""
    x, w, bias = (*args, None)[:3]
    axes = x.ndim - 2

    def spread(name: str, default: int) -> tuple[int, ...]:
        given = attrs.get(name, default)
        items = (given,) if isinstance(given, int) else tuple(given)
        return items * axes if len(items) == 1 else items

    stride, padding, dilation = spread("stride", 1), spread("padding", 0), spread("dilation", 1)
    per_group = w.shape[0] // attrs.get("groups", 1)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    lengths = [
        (x.shape[n + 2] - dilation[n] * (w.shape[n + 2] - 1) - 1) // stride[n] + 1
        for n in range(axes)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *lengths))
    for n, o, *at in np.ndindex(*out.shape):
        for c, *tap in np.ndindex(*w.shape[1:]):
            place = [i * s + k * d for i, s, k, d in zip(at, stride, tap, dilation, strict=True)]
            channel = o // per_group * w.shape[1] + c
            out[(n, o, *at)] += x[(n, channel, *place)] * w[(o, c, *tap)]
    return out if bias is None else out + bias.reshape(-1, *(1,) * axes)


def einsum(args: Arrays, attrs: Attrs) -> Any:
    """One product per point of all letters, summed."""
    left, arrow, out = attrs["equation"].replace(" ", "").partition("->")
    ins = left.split(",")
    if not arrow:
        out = "".join(c for c in string.ascii_letters if left.count(c) == 1)
        out = "".join(sorted(out))
    extents = {
        c: e for own, a in zip(ins, args, strict=True) for c, e in zip(own, a.shape, strict=True)
    }
    result = np.zeros([extents[c] for c in out])
    for point in np.ndindex(*extents.values()):
        at = dict(zip(extents, point, strict=True))
        term = 1.0
        for own, a in zip(ins, args, strict=True):
            term *= float(a[tuple(at[c] for c in own)])
        result[tuple(at[c] for c in out)] += term
    return result


REFERENCES: dict[str, Callable[[Arrays, Attrs], Any]] = {
    "reshape": reshape,
    "transpose": transpose,
    "concat": concat,
    "stack": stack,
    "split": split,
    "repeat_interleave": repeat_interleave,
    "index_select": index_select,
    "index_add": index_add,
    "index_copy": index_copy,
    "cache_update": cache_update,
    "pad": pad,
    "gather": gather,
    "scatter_add": scatter_add,
    "conv1d": conv,
    "conv2d": conv,
    "einsum": einsum,
}
