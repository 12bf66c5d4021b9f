"""Source files: their text, their syntax trees, and spans into them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from tilefoundry.diag import Refusal, Span, refuse


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
            refuse("source-syntax", span, why=why, fix="correct the syntax at this line")
        except (RecursionError, MemoryError):  # MemoryError: Python's parser stack overflowed
            too_deep(self.path)

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


def lines_of(path: str) -> tuple[str, ...]:
    """The lines of a file as :func:`source_file` has it; none where it cannot be read."""
    try:
        return source_file(path).lines
    except Refusal:
        return ()


def read_source(path: str) -> SourceFile:
    """The file at ``path`` as it is now, without a byte-order mark."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        why, fix = _unreadable(path, error)
        refuse("source-unreadable", None, file=path, why=why, fix=fix)
    return remember(path, text)


def _unreadable(path: str, error: Exception) -> tuple[str, str]:
    """Why a file cannot be read, and what to do about that."""
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return (f"byte {error.object[error.start]:#04x} on line {line} is not UTF-8",
                f"save the file as UTF-8, or correct line {line}")  # fmt: skip
    if isinstance(error, FileNotFoundError):
        return "there is no such file", _absent(Path(path))
    if isinstance(error, IsADirectoryError):
        inside = sorted(p.name for p in Path(path).glob("*.py"))
        one = f"one of its files, as {Path(path) / inside[0]}" if inside else "a file"
        return "it is a folder", f"name {one}"
    if isinstance(error, NotADirectoryError):
        part = next(p for p in Path(path).parents if p.is_file())
        return f"{part} is a file, not a folder", f"name {part}, or a folder in its place"
    if isinstance(error, PermissionError):
        return "this user may not read it", f"chmod +r {path}, or its folder's +x, or another user"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower(), "name another file, or put this one right"
    return str(error), "write the path without it"


def _absent(path: Path) -> str:
    """What to do about a file that is not there."""
    import difflib

    folder = path.parent
    if not folder.is_dir():
        return f"create the folder {folder}, or correct the path (from {Path.cwd()})"
    if path.is_symlink():
        return f"{path} is a link: make {path.readlink()}, which it leads to, or another link"
    known = sorted(p.stem for p in folder.glob("*.py") if p.is_file())
    near = difflib.get_close_matches(path.stem, known, 1)
    if near:
        return f"the nearest is {folder / near[0]}.py"
    here = " ".join(f"{name}.py" for name in known[:MOST_LISTED]) or "none"
    return f"correct the path, or write the file; Python files in {folder.absolute()}: {here}"


MOST_LISTED = 8
"""Files of a folder that a refusal names."""


def too_deep(path: str) -> NoReturn:
    """Refuse a file in which Python's own parser or compiler finds no end."""
    refuse("source-syntax", Span(path, 1), why="an expression or a block nests too deeply",
           fix="give parts of the longest expression names, each on a line of its own")  # fmt: skip


def span_of(file: str, node: ast.AST) -> Span:
    """Where ``node`` stands in ``file``."""
    return Span(
        file,
        getattr(node, "lineno", 1),
        getattr(node, "col_offset", 0),
        getattr(node, "end_lineno", None) or 0,
        getattr(node, "end_col_offset", None) or 0,
    )
