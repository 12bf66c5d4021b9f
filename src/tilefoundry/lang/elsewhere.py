"""What an operation of another library is called here."""

from __future__ import annotations

import difflib

from tilefoundry.ops import names

WRITTEN = {
    **{k: f'tf.reduce(x, axes, kind="{k}")' for k in ("sum", "mean", "prod", "any", "all")},
    **dict.fromkeys(("amax",), 'tf.reduce(x, axes, kind="max")'),
    **dict.fromkeys(("amin",), 'tf.reduce(x, axes, kind="min")'),
    **dict.fromkeys(("var", "std"), "tf.reduce of tf.square of the difference from the mean"),
    **dict.fromkeys(("permute", "T", "t", "mT", "swapaxes"), "tf.transpose(x, perm)"),
    **dict.fromkeys(("view", "flatten", "squeeze"), "tf.reshape(x, new_shape)"),
    **dict.fromkeys(("expand_dims", "unsqueeze"), "x[:, None] or tf.reshape(x, new_shape)"),
    **dict.fromkeys(("expand", "broadcast_to"), "nothing: operands broadcast"),
    **dict.fromkeys(("dot", "mm", "bmm", "linear"), "tf.matmul(lhs, rhs)"),
    **dict.fromkeys(("cat", "concatenate"), "tf.concat(*inputs, axis=...)"),
    **dict.fromkeys(("to", "type", "astype", "float", "half", "bfloat16"), "tf.cast(x, dtype)"),
    **dict.fromkeys(("ones", "full"), "tf.full_like(tf.zeros(type), value)"),
    **dict.fromkeys(("size",), "x.shape"),
    **dict.fromkeys(("item", "numpy", "tolist"), "tf.where: values are not known when written"),
    **dict.fromkeys(("clip",), "tf.clamp(x, min_val, max_val)"),
    **dict.fromkeys(("reciprocal",), "1.0 / x"),
    **dict.fromkeys(("log_softmax",), "tf.log(tf.softmax(x, axis))"),
    **dict.fromkeys(("swish",), "tf.silu(x)"),
    **dict.fromkeys(("embedding",), "tf.index_select(table, index, 0)"),
}


def instead(name: str) -> str:
    """What to write for ``name``: the way here, or the operations spelled alike."""
    if name in WRITTEN:
        return WRITTEN[name]
    known = sorted(names())
    if name in known:
        return f"tf.{name}(x)"
    near = difflib.get_close_matches(name, known, 3)
    return " or ".join(f"tf.{n}" for n in near) or "see `tilefoundry spec operations`"
