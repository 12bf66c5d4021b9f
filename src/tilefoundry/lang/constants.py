"""Module-level constants: their values by ``--const``, and their mention in refusals."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilefoundry.diag import Diag, Refusal, Span, refuse
from tilefoundry.lang.source import SourceFile, source_file

GIVEN = "__tilefoundry_given__"
"""The name by which an executed file finds :func:`giver`'s function."""

SCALARS: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    type(None): (bool, int, float, str),
}
"""Types of a constant that the command line can give, by the type that the file gives it."""

LONGEST = 40
"""Characters of a value shown in a list."""

OF_EXTENTS = frozenset(
    (
        "layout-shape",
        "shard-indivisible",
        "reshape-size",
        "reshape-splits",
        "matmul-inner",
        "op-broadcast",
        "slice-range",
        "split-sizes",
        "mesh-rearrange-size",
    )
)
"""Refusals of arithmetic on extents: they name the constants of their line."""


def overridden(file: SourceFile, consts: Mapping[str, object]) -> ast.Module:
    """The file's tree with each constant of ``consts`` bound anew right after it is assigned.

    Refuses a name that the file does not assign at its top level (``const-unknown``).
    """
    body: list[ast.stmt] = []
    found: set[str] = set()
    for stmt in file.tree.body:
        body.append(stmt)
        for name in _stored(stmt):
            if name in consts:
                found.add(name)
                given = f"{name} = {GIVEN}({name!r}, {name}, {stmt.lineno})"
                again = ast.parse(given).body[0]
                for node in ast.walk(again):
                    ast.copy_location(node, stmt)
                body.append(again)
    for name, value in consts.items():
        if name not in found:
            known = _stated(file)
            near = difflib.get_close_matches(name, known, 1, 0.5)
            fix = f"--const {near[0]}={value}" if near else (
                f"choose one of them, or assign {name} at the top level of {file.path}"
            )  # fmt: skip
            refuse("const-unknown", None, name=name, value=value, file=file.path,
                   known=_listed(known), fix=fix)  # fmt: skip
    return ast.Module(body, file.tree.type_ignores)


def giver(file: SourceFile, consts: Mapping[str, object]) -> Callable[[str, object, int], object]:
    """The function that answers ``(name, the file's value, its line)`` with the value to bind.

    Refuses one of another type than the file's (``const-type``).
    """

    def given(name: str, old: object, line: int) -> object:
        new = consts[name]
        fits = SCALARS.get(type(old), ())
        if type(new) not in fits:
            wants = f"a value of type {' or '.join(t.__name__ for t in fits)}"
            if not fits:
                wants = "a constant that is a number, a text, True, False or None"
            refuse("const-type", Span(file.path, line), name=name, value=new, old=_cut(repr(old)),
                   found=f"{new!r}, of type {type(new).__name__}", wants=wants,
                   known=_listed(_stated(file)))  # fmt: skip
        return float(new) if isinstance(old, float) else new  # pyright: ignore

    return given


def _stored(stmt: ast.stmt) -> list[str]:
    """Names that an assignment binds."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)):
        return []
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
    names = [n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


def _stated(file: SourceFile) -> dict[str, str]:
    """Constants of a file and what it assigns to them, as written; the last where several."""
    out: dict[str, str] = {}
    for stmt in file.tree.body:
        value = getattr(stmt, "value", None)
        for name in _stored(stmt):
            out[name] = _written(file, value)
        for target in getattr(stmt, "targets", ()):
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for part, item in zip(target.elts, value.elts, strict=False):
                    if isinstance(part, ast.Name):
                        out[part.id] = _written(file, item)
    return out


def _written(file: SourceFile, value: object) -> str:
    found = ast.get_source_segment(file.text, value) if isinstance(value, ast.expr) else None
    return " ".join((found or "").split())


def _listed(known: Mapping[str, str]) -> str:
    return ", ".join(f"{n}={_cut(v)}" for n, v in known.items() if v) or "none"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def with_constants(refusal: Refusal, names: Mapping[str, Any]) -> Refusal:
    """The refusal; where it is of arithmetic on extents, with the integers that its line names
    and those of the values that it tells of."""
    return Refusal(*(_with_constants(d, names) for d in refusal.diags))


def _with_constants(diag: Diag, names: Mapping[str, Any]) -> Diag:
    if diag.code not in OF_EXTENTS or diag.span is None:
        return diag
    lines = source_file(diag.span.file).lines[diag.span.line - 1 : diag.span.end_line or None]
    said = {int(n) for n in re.findall(r"\d+", diag.says)} - {0, 1}
    integers = {n: v for n, v in names.items() if type(v) is int and not n.startswith("_")}
    meant = [w for w in re.findall(r"(?<![\w.])[^\W\d]\w*", " ".join(lines)) if w in integers]
    meant += [n for n, v in integers.items() if v in said]
    if not meant:
        return diag
    note = " ".join(f"{n}={integers[n]}" for n in dict.fromkeys(meant))
    return replace(diag, notes=(*diag.notes, note))
