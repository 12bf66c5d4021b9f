"""What an instruction stands for: the operation that its declaration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilefoundry.diag import Span, refuse

TILED = "tiled_mma"
"""A matrix product by repeats of an atom, given as its parameter ``atom``."""


def meaning(instr: Any, span: Span | None) -> tuple[str, Mapping[str, Any]]:
    """``copy``, ``mma`` or an operation's name, with that operation's attributes.

    Refuses what is not an instruction, an unknown one, and a matrix instruction's atom
    that is not one.
    """
    path = _fields(instr).get("path")
    if not isinstance(path, str) or not isinstance(_fields(instr).get("params"), tuple):
        refuse("instruction-form", span, found=repr(instr))
    kind = _known(path, span)
    if path == TILED:
        atom = _fields(instr.get("atom")).get("path")
        if not isinstance(atom, str) or _known(atom, span) != "mma":
            refuse("instruction-atom", span, name=f"T.{path}", found=repr(instr.get("atom")))
        kind = "mma"
    return kind, {} if kind in ("mma", "copy") else _attributes(kind, instr, span)


def _known(path: str, span: Span | None) -> str:
    """What the instruction at ``path`` means; refuses one that is unknown or not scheduled."""
    from tilefoundry.targets.contract.registry import contract_at, known_beside

    contract = contract_at(path)
    if contract is not None and contract.meaning == "derived":
        refuse("instruction-derived", span, name=f"T.{path}")
    if contract is None:
        from difflib import get_close_matches

        # every family's names are too many to read: the nearest, or those of all targets
        every = [c.path for c in known_beside(path) if c.meaning != "derived"]
        near = get_close_matches(path, every, 6, 0.3)
        names = " ".join(near or [n for n in every if "." not in n])
        refuse("instruction-unknown", span, name=f"T.{path}", known=names)
    return contract.meaning


def _attributes(kind: str, instr: Any, span: Span | None) -> Mapping[str, Any]:
    from tilefoundry.ops import find
    from tilefoundry.ops.signature import Attr, bind

    op = find(kind)
    assert op is not None, kind
    attrs = [p for p in op.params if isinstance(p, Attr)]
    return bind(f"T.{instr.path}", attrs, instr.args, dict(instr.params), span).attrs


def _fields(value: Any) -> Mapping[str, Any]:
    """A record's own fields; none for a value that is no record."""
    return getattr(value, "__dict__", {})
