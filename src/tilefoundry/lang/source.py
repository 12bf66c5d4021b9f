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
        except RecursionError:
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
            if isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler):
                stack += ast.iter_child_nodes(node)
        return found

    def function(self, name: str, line: int) -> ast.FunctionDef | None:
        """The definition of ``name`` whose first decorator (or ``def``) is on ``line``."""
        return self._functions.get((name, line))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.text.splitlines())


_files: dict[str, SourceFile] = {}


def remember(path: str, text: str) -> SourceFile:
    """Keep the text that was executed, so that spans point into it."""
    _files[path] = SourceFile(path, text)
    return _files[path]


def source_file(path: str) -> SourceFile:
    """The file at ``path``; what was executed in this process stays as it was then."""
    if path not in _files:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            refuse("source-unreadable", None, file=path, why=_reason(error))
        remember(path, text)
    return _files[path]


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
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
