"""What each instruction computes, by its path under ``T``.

``copy`` moves a value, ``mma`` adds a matrix product to an accumulator, any other word
is the operation of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span, refuse

MEANINGS: dict[str, str] = {
    "copy": "copy",
    "copy_async": "copy",
    "copy_async_tensor": "copy",
    "copy_async_bulk": "copy",
    "ldmatrix": "copy",
    "stmatrix": "copy",
    "tiled_mma": "mma",
    "cuda.sm80.Mma": "mma",
    "cuda.sm89.Mma": "mma",
    "cuda.sm90.Wgmma": "mma",
    "arange": "arange",
    "binary": "binary",
    "unary": "unary",
    "cast": "cast",
    "clamp": "clamp",
    "where": "where",
    "relu": "relu",
    "reduce": "reduce",
    "fill": "full_like",
}


def meaning(instr: Any, span: Span | None) -> tuple[str, Mapping[str, Any]]:
    """The operation ``instr`` stands for, with that operation's attributes.

    Refuses what is not an instruction, an unknown one, and a matrix instruction's atom
    that is not one.
    """
    from tilefoundry.ops import find
    from tilefoundry.ops.signature import Attr, bind

    path = _fields(instr).get("path")
    if not isinstance(path, str) or not isinstance(_fields(instr).get("params"), tuple):
        refuse("instruction-form", span, found=repr(instr))
    kind = MEANINGS.get(path)
    if kind is None:
        refuse("instruction-unknown", span, name=f"T.{path}", known=" ".join(MEANINGS))
    if kind == "mma":
        atom = instr.get("atom", instr if path != "tiled_mma" else None)
        if MEANINGS.get(str(_fields(atom).get("path"))) != "mma":
            refuse("instruction-atom", span, name=f"T.{path}", found=repr(atom))
        return kind, {}
    if kind == "copy":
        return kind, {}
    op = find(kind)
    assert op is not None, kind
    attrs = [p for p in op.params if isinstance(p, Attr)]
    bound = bind(f"T.{path}", attrs, instr.args, dict(instr.params), span)
    return kind, bound.attrs


def _fields(value: Any) -> Mapping[str, Any]:
    """A record's own fields; none for a value that is no record."""
    return getattr(value, "__dict__", {})
