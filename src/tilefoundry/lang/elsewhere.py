"""What an operation of another library is called here: torch, numpy, Python, Triton, einops."""

from __future__ import annotations

import difflib
from types import ModuleType

from tilefoundry.ops import ALIASES, find, names
from tilefoundry.ops.signature import takes

MOST_LISTED = 12
"""Attributes named where none is alike."""

LEAST_LIKE = 0.7
"""Similarity (difflib's ratio) from which a name is taken for another one misspelt."""

REDUCED = "tf.reduce(x, axes=(-1,), keepdim=False, kind={!r})"
METHODS = {"max": REDUCED.format("max"), "min": REDUCED.format("min")}
"""What differs for a method of a tensor: as functions these compare two."""

WRITTEN = {
    name: form
    for form, spelled in {
        REDUCED.format("sum"): "sum reduce_sum nansum",
        REDUCED.format("mean"): "mean reduce_mean average",
        REDUCED.format("prod"): "prod reduce_prod",
        REDUCED.format("any"): "any",
        REDUCED.format("all"): "all",
        REDUCED.format("max"): "amax reduce_max row_max",
        REDUCED.format("min"): "amin reduce_min",
        "tf.reduce(tf.square(x - mean), ..., kind='mean') with the mean of tf.reduce": "var std",
        "tf.sqrt(tf.reduce(x * x, axes=(-1,), kind='sum'))": "norm vector_norm",
        "tf.log(tf.reduce(tf.exp(x - m), ..., kind='sum')) + m with m = tf.reduce(x, ..., "
        "kind='max')": "logsumexp",
        "tf.transpose(x, perm)": "permute permute_dims T t mT swapaxes swapdims moveaxis",
        "tf.reshape(x, new_shape)": "view flatten squeeze ravel unflatten rearrange",
        "x[:, None] or tf.reshape(x, new_shape)": "expand_dims unsqueeze",
        "the operand itself: operands broadcast": "expand expand_as broadcast_to broadcast "
        "contiguous clone detach requires_grad_",
        "tf.matmul(lhs, rhs)": "dot mm bmm linear inner tensordot",
        "lhs[:, None] * rhs[None, :]": "outer ger",
        "tf.matmul(lhs, rhs) + x": "addmm baddbmm",
        "tf.concat(*inputs, axis=...)": "cat concatenate hstack vstack",
        "tf.split(x, num_splits, axis)": "chunk unbind",
        "tf.repeat_interleave(x, repeats, axis) for elements, tf.concat for the whole": "repeat",
        'tf.cast(x, dtype), as in tf.cast(x, "f16")': "to type astype float half bfloat16 double "
        "int long bool float32 float16 float64 int32 int64 int8 uint8 cast_to",
        "tf.bitcast(x, layout)": "bitcast_convert_type",
        'tf.full_like(tf.zeros(type), value), where type is Tensor[shape, "f32"]': "ones full",
        "tf.full_like(x, value)": "ones_like zeros_like",
        "tf.empty(type)": "empty_like",
        "tf.arange(type, start, step)": "iota linspace",
        "x.shape": "size ndim",
        "tf.where: values are not known when the program is written": "item numpy tolist",
        "tf.clamp(x, min_val, max_val)": "clip clip_by_value clamp_ clamp_min clamp_max",
        "1.0 / x": "reciprocal",
        "lhs - rhs": "subtract",
        "lhs + rhs": "add_",
        "lhs * rhs": "multiply mul_",
        "lhs / rhs": "divide true_divide truediv div_",
        "lhs // rhs": "floor_divide floordiv",
        "lhs % rhs": "remainder fmod",
        "x * y + z": "mad addcmul lerp",
        "-x": "negative",
        "x ** y": "power float_power",
        "tf.abs(x)": "absolute fabs",
        "x > y": "greater gt",
        "x >= y": "greater_equal ge",
        "x < y": "less lt",
        "x <= y": "less_equal le",
        "x == y": "equal eq isclose",
        "x != y": "not_equal ne",
        "x != x": "isnan",
        "tf.where(condition, input, other)": "select if_ cond masked_fill if_then_else",
        "tf.exp(x) - 1.0": "expm1",
        "tf.log(1.0 + x)": "log1p",
        "tf.log(tf.softmax(x, axis))": "log_softmax",
        "tf.silu(x)": "swish",
        "tf.where(x > 0.0, x, slope * x)": "leaky_relu prelu",
        "tf.index_select(table, index, 0)": "embedding take index lookup",
        "tf.gather(x, index, axis)": "take_along_axis take_along_dim",
        "tf.scatter_add(dst, index, src, axis) to add, tf.index_copy(dst, index, src, dim) to put "
        "whole slices": "scatter scatter_ scatter_add_ scatter_reduce index_put index_put_",
        "tf.topk(x, k, axis, largest, sorted=True)": "sort argsort",
        "tf.cumsum(x, axis)": "cumulative_sum scan",
        "tf.cast(index[:, None] == tf.arange(type), dtype)": "one_hot",
        "tf.matmul, tf.softmax and tf.matmul": "attention scaled_dot_product_attention",
        "tf.reshard(x[a:b], layout, storage)": "load copy copy_ to_device",
        "tf.insert_slice(dst, update, offsets)": "store dynamic_update_slice",
        "tf.reshard(x, layout, storage)": "all_reduce all_gather reduce_scatter all_to_all",
        "nothing: `tilefoundry analyze` shows the type of every value": "print display",
        "nothing: all synchronisation is derived": "barrier sync synchronize syncthreads",
        "range(start, stop, step) of a for": "range serial parallel grid unroll prange",
    }.items()
    for name in spelled.split()
}
"""What to write, by the name that other libraries have for it."""


def instead(name: str, *, method: bool = False) -> str:
    """What to write for ``name``: the way here, or the operations spelled alike.

    ``method``: it was written as an attribute of a tensor.
    """
    if method and name in METHODS:
        return METHODS[name]
    known = sorted({*names(), *ALIASES})
    plain = name.lower().strip("_")
    for word in (name, plain):
        if word in WRITTEN:
            return WRITTEN[word]
        if word in known:
            return spelled(word)
    near = difflib.get_close_matches(plain, known, 3, LEAST_LIKE)
    if len(near) == 1:
        return spelled(near[0])
    listed = "it with the operations that `tilefoundry spec operations` lists"
    return " or ".join(f"tf.{n}" for n in near) or listed


def spelled(name: str) -> str:
    """``tf.exp(x)``: an operation with its parameters."""
    op = find(name)
    assert op is not None
    return f"tf.{name}{takes(op.params)}"


def attribute(base: object, name: str) -> str:
    """What to write for an attribute that ``base`` has not: the nearest one, an operation where
    a library's name was meant, else all that there are."""
    if type(base) is dict and name in base:
        return f"[{name!r}]"
    try:
        known = [n for n in dir(base) if not n.startswith("_")]
    except Exception:  # an author's own class may answer as it likes
        known = []
    near = difflib.get_close_matches(name, known, 3, LEAST_LIKE)
    if near:
        return " or ".join(near)
    if isinstance(base, ModuleType) and (name in WRITTEN or find(name) is not None):
        return instead(name)
    return f"one of {' '.join(known[:MOST_LISTED])}" if known else "the value itself: it has none"
