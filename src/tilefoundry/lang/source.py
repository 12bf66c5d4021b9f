"""Source files: their text, their syntax trees, and spans into them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tilefoundry.diag import Span, refuse


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One author's file."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; refuses what Python cannot parse."""
        try:
            return ast.parse(self.text, self.path)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            span = Span(self.path, line, (getattr(error, "offset", None) or 1) - 1)
            why = getattr(error, "msg", None) or str(error)
            refuse("source-syntax", span, why=why)
        except (RecursionError, MemoryError):  # MemoryError: Python's parser stack overflowed
            refuse("source-syntax", Span(self.path, 1), why="it nests too deeply")

    @cached_property
    def _functions(self) -> dict[tuple[str, int], ast.FunctionDef]:
        found: dict[tuple[str, int], ast.FunctionDef] = {}
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found[node.name, first] = node
            if isinstance(node, (ast.stmt, ast.Module, ast.ExceptHandler, ast.match_case)):
                stack += ast.iter_child_nodes(node)
        return found

    def function(self, name: str, line: int) -> ast.FunctionDef | None:
        """The definition of ``name`` whose first decorator (or ``def``) is on ``line``."""
        return self._functions.get((name, line))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Lines as Python counts them (a form feed ends none)."""
        lines = self.text.split("\n")
        return tuple(lines[:-1] if lines[-1] == "" else lines)


_files: dict[str, SourceFile] = {}


def remember(path: str, text: str) -> SourceFile:
    """Keep the text that was executed, so that spans point into it."""
    _files[path] = SourceFile(path, text)
    return _files[path]


def source_file(path: str) -> SourceFile:
    """The file at ``path`` as it was when it was executed, else as it is."""
    return _files[path] if path in _files else read_source(path)


def read_source(path: str) -> SourceFile:
    """The file at ``path`` as it is now, without a byte-order mark."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        refuse("source-unreadable", None, file=path, why=_reason(error))
    return remember(path, text)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return getattr(error, "strerror", None) or str(error)


def span_of(file: str, node: ast.AST) -> Span:
    """Where ``node`` stands in ``file``."""
    return Span(
        file,
        getattr(node, "lineno", 1),
        getattr(node, "col_offset", 0),
        getattr(node, "end_lineno", None) or 0,
        getattr(node, "end_col_offset", None) or 0,
    )
