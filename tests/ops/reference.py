"""What the arithmetic, reductions and layers compute, in numpy.

Each function takes the operands (None: left out) and the attributes. Floats arrive as
float64, integers and bools as they are. ``Near`` states the scale of the error where
it is not the value itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Near(NamedTuple):
    """A value and the magnitude that its rounding errors are relative to."""

    value: Any
    scale: Any = None


Arrays = Sequence[Any]
Attrs = Mapping[str, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def of(function: Callable[..., Any]) -> Callable[[Arrays, Attrs], Any]:
    """A function of the arrays alone."""
    return lambda args, attrs: function(*args)


def division(a: Any, b: Any) -> Any:
    return np.true_divide(a, b)


def remainder(a: Any, b: Any) -> Any:
    return Near(np.mod(a, b), np.abs(b)) if np.asarray(a).dtype.kind == "f" else np.mod(a, b)


def clamp(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    lo, hi = attrs.get("min_val"), attrs.get("max_val")
    out = x
    out = out if lo is None else np.where(out < lo, lo, out)
    # a bound is rounded to the operand's dtype: an error relative to the bound
    return (out if hi is None else np.where(out > hi, hi, out)).astype(x.dtype)


def gelu(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    if attrs.get("approximate", "none") == "tanh":
        inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        inner = _erf(x / math.sqrt(2))
    # 1 + inner cancels for negative x: errors are relative to x
    return Near(x / 2 * (1 + inner), np.abs(x))


INTEGERS = {"i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8}


def cast(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    to = str(attrs["dtype"])
    if to == "bool":
        return x != 0
    if to in INTEGERS:
        return np.trunc(x).astype(np.int64).astype(INTEGERS[to])
    return x.astype(np.float64)


def bitcast(args: Arrays, attrs: Attrs) -> Any:
    """By placing each coordinate at its offset, one at a time."""
    (x,) = args
    layout = attrs["layout"]
    shape, strides = layout, None
    if len(layout) == 2 and all(isinstance(part, tuple) for part in layout):
        shape, strides = layout
    out = np.empty(shape, x.dtype)
    flat = list(x.flat)
    if strides is None:
        strides = [int(np.prod(shape[n + 1 :], dtype=int)) for n in range(len(shape))]
    for at in np.ndindex(*shape):
        out[at] = flat[sum(i * s for i, s in zip(at, strides, strict=True))]
    return out


def full_like(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    return np.full(x.shape, attrs["value"], np.float64 if x.dtype.kind == "f" else x.dtype)


def arange(args: Arrays, attrs: Attrs) -> Any:
    made = attrs["type"]
    start, step = attrs.get("start", 0), attrs.get("step", 1)
    values = [start + n * step for n in range(made.shape[0])]
    return np.array(values, np.float64 if made.dtype.is_float else np.int64)


def zeros(args: Arrays, attrs: Attrs) -> Any:
    return np.zeros(attrs["type"].shape)


def slice_(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    strides = attrs.get("strides") or (1,) * x.ndim
    parts = zip(attrs["starts"], attrs["sizes"], strides, strict=True)
    return x[np.ix_(*([a + i * s for i in range(n)] for a, n, s in parts))]


def insert_slice(args: Arrays, attrs: Attrs) -> Any:
    dst, update = args
    out = dst.copy()
    for at in np.ndindex(*update.shape):
        out[tuple(i + o for i, o in zip(at, attrs["offsets"], strict=True))] = update[at]
    return out


def reduce(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    kind = str(attrs.get("kind", "sum")).lower()
    axes, keep = attrs["axes"], attrs.get("keepdim", False)
    x = np.abs(x) if kind == "abs_max" else x
    function = {
        "sum": np.sum,
        "mean": np.mean,
        "max": np.max,
        "min": np.min,
        "abs_max": np.max,
        "prod": np.prod,
        "any": np.any,
        "all": np.all,
    }[kind]
    return function(x, axis=axes, keepdims=keep)


def matmul(args: Arrays, attrs: Attrs) -> Any:
    a, b = args
    if str(attrs.get("a_layout", "mk")).lower() == "km" and a.ndim > 1:
        a = np.swapaxes(a, -1, -2)
    if str(attrs.get("b_layout", "kn")).lower() == "nk" and b.ndim > 1:
        b = np.swapaxes(b, -1, -2)
    if a.dtype.kind != "f":
        a, b = a.astype(np.int64), b.astype(np.int64)
    return np.matmul(a, b)


def softmax(args: Arrays, attrs: Attrs) -> Any:
    (x,) = args
    axis = attrs.get("axis", -1)
    e = np.exp(x - x.max(axis, keepdims=True))
    # an argument's rounding, relative to its size, is an error of the exponential
    return Near(e / e.sum(axis, keepdims=True), (1 + np.abs(x)) * e)


def rms_norm(args: Arrays, attrs: Attrs) -> Any:
    x, weight = args
    out = x / np.sqrt(np.mean(x**2, -1, keepdims=True) + attrs.get("eps", 1e-6))
    return out if weight is None else out * weight


def layer_norm(args: Arrays, attrs: Attrs) -> Any:
    x, weight, bias = args
    axes = tuple(range(attrs.get("axis", -1) % x.ndim, x.ndim))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    root = np.sqrt(var + attrs.get("eps", 1e-5))
    out, scale = (x - mean) / root, (np.abs(x) + np.abs(mean)) / root
    if weight is not None:
        out, scale = out * weight, scale * np.abs(weight)
    if bias is not None:
        out, scale = out + bias, scale + np.abs(bias)
    return Near(out, scale)


def rope(args: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """As complex numbers: (x[d] + i·x[d + D/2]) turned, where both halves share the cache;
    halves with caches of their own one element at a time."""
    q, k, cos, sin, pos = args
    return _turn(q, cos, sin, pos), _turn(k, cos, sin, pos)


def _turn(x: Any, cos: Any, sin: Any, pos: Any) -> Any:
    width = x.shape[-1]
    half = width // 2
    out, scale = np.empty_like(x), np.empty_like(x)
    for at in np.ndindex(*x.shape):
        p, d = int(pos[at[:-2]]), at[-1]
        c, s = (cache[p, d if cache.shape[1] == width else d % half] for cache in (cos, sin))
        partner = x[(*at[:-1], (d + half) % width)]
        sign = -1 if d < half else 1
        out[at] = x[at] * c + sign * partner * s
        scale[at] = abs(x[at] * c) + abs(partner * s)
    return Near(out, scale)


def quant(args: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Block by block; the quotient is left real, so its rounding is the bound's."""
    (x,) = args
    group = attrs.get("group")
    if group is None:
        sizes = x.shape
    else:
        given = (group,) if isinstance(group, int) else tuple(group)
        sizes = (1,) * (x.ndim - len(given)) + given
        sizes = tuple(e if s == -1 else s for s, e in zip(sizes, x.shape, strict=True))
    qmax = {"i8": 127, "fp8e4m3": 448, "fp8e5m2": 57344}[str(attrs["target_dtype"])]
    counts = tuple(e // s for e, s in zip(x.shape, sizes, strict=True))
    q, scale = np.empty_like(x), np.empty(counts)
    for at in np.ndindex(*counts):
        where = tuple(slice(i * s, i * s + s) for i, s in zip(at, sizes, strict=True))
        top = np.abs(x[where]).max() / qmax
        if attrs.get("scheme") == "absmax_pow2":
            power = 2.0**-200
            while power < top:
                power *= 2
            top = power
        scale[at] = top
        q[where] = x[where] / top
    return q, scale


def _sorted(x: Any, axis: int, largest: bool) -> Any:
    return np.argsort(-x if largest else x, axis=axis, kind="stable")


def topk(args: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x = args[0]
    axis, k = attrs.get("axis", -1), attrs["k"]
    index = np.take(_sorted(x, axis, attrs.get("largest", True)), range(k), axis)
    return np.take_along_axis(x, index, axis), index


def argmax(args: Arrays, attrs: Attrs) -> Any:
    axis = attrs.get("axis", -1)
    return np.take(_sorted(args[0], axis, True), 0, axis)


def by_kind(args: Arrays, attrs: Attrs) -> Any:
    name = str(attrs["kind"]).lower()
    name = {"min": "minimum", "max": "maximum"}.get(name, name)
    return REFERENCES[name](args, {})


REFERENCES: dict[str, Callable[[Arrays, Attrs], Any]] = {
    "add": of(np.add),
    "sub": of(np.subtract),
    "mul": of(np.multiply),
    "div": of(division),
    "floor_div": of(np.floor_divide),
    "mod": of(remainder),
    "minimum": of(np.minimum),
    "maximum": of(np.maximum),
    "fmin": of(np.fmin),
    "fmax": of(np.fmax),
    "cmp_eq": of(np.equal),
    "cmp_ne": of(np.not_equal),
    "cmp_lt": of(np.less),
    "cmp_le": of(np.less_equal),
    "cmp_gt": of(np.greater),
    "cmp_ge": of(np.greater_equal),
    "logical_and": of(lambda a, b: (a != 0) & (b != 0)),
    "logical_or": of(lambda a, b: (a != 0) | (b != 0)),
    "logical_not": of(lambda a: a == 0),
    "neg": of(np.negative),
    "abs": of(np.abs),
    "rsqrt": of(lambda x: 1 / np.sqrt(x)),
    "sqrt": of(np.sqrt),
    "square": of(lambda x: x * x),
    "exp": of(np.exp),
    "exp2": of(np.exp2),
    "log": of(np.log),
    "log2": of(np.log2),
    "ceil": of(np.ceil),
    "floor": of(np.floor),
    "round": of(np.rint),
    "relu": of(lambda x: np.where(x > 0, x, 0)),
    "sigmoid": of(lambda x: 1 / (1 + np.exp(-x))),
    "silu": of(lambda x: x / (1 + np.exp(-x))),
    "softplus": of(lambda x: np.logaddexp(0, x)),
    "tanh": of(np.tanh),
    "erf": of(_erf),
    "sin": of(np.sin),
    "cos": of(np.cos),
    "pow": of(np.power),
    "fma": of(lambda x, y, z: Near(x * y + z, np.abs(x * y) + np.abs(z))),
    "where": of(np.where),
    "clamp": clamp,
    "gelu": gelu,
    "cast": cast,
    "bitcast": bitcast,
    "full_like": full_like,
    "arange": arange,
    "zeros": zeros,
    "slice": slice_,
    "insert_slice": insert_slice,
    "reshard": of(lambda x: x),
    "local": of(lambda x: x),
    "reduce": reduce,
    "matmul": matmul,
    "softmax": softmax,
    "rms_norm": rms_norm,
    "layer_norm": layer_norm,
    "rope": rope,
    "quant": quant,
    "topk": topk,
    "argmax": argmax,
    "cumsum": lambda args, attrs: np.cumsum(args[0], axis=attrs.get("axis", -1)),
    "unary": by_kind,
    "binary": by_kind,
}
