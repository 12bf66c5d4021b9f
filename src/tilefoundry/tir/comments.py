"""Comments of a printed kernel that are part of it: heads, reasons, the author's lines."""

from __future__ import annotations

import ast
import re

from tilefoundry.diag import Span

WHERE = re.compile(r"(?:(?P<text>.*?) \((?P<a>[^\s():]+):(?P<n>\d+)\)|(?P<b>[^\s():]+):(?P<m>\d+))")
BEHIND = re.compile(r"[\s,)]*:?[ \t]*(?:#[ ]?(?P<text>[^\n]*))?")
REGISTERS = re.compile(r"registers role=(.*) estimate=(\d+)(?: declared=(\d+))?")


class Comments:
    """The comments of one file, found by where statements end."""

    def __init__(self, text: str) -> None:
        self._lines = [line.encode() for line in text.split("\n")]

    def above(self, line: int) -> tuple[tuple[str, ...], tuple[tuple[str, int, int], ...]]:
        """The head that ends above ``line`` (from 1): notes, then registers of each role."""
        notes: list[str] = []
        registers: list[tuple[str, int, int]] = []
        at = line - 2
        while at >= 0 and self._lines[at].lstrip().startswith(b"#"):
            text = self._lines[at].decode().strip()[1:].removeprefix(" ")
            found = REGISTERS.fullmatch(text)
            if found is None:
                notes.insert(0, text)
            else:
                registers.insert(0, (found[1], int(found[2]), int(found[3] or 0)))
            at -= 1
        return tuple(notes), tuple(registers)

    def behind(self, node: ast.stmt) -> tuple[str, Span | None]:
        """What stands behind a statement: its text, and the author's line."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return _parts(self._lines[node.end_lineno - 1][node.end_col_offset :].decode())

    def behind_head(self, last: ast.AST, first: ast.stmt) -> tuple[str, Span | None]:
        """What stands behind ``last``, the end of a head, and before the body's ``first``."""
        line, col = last.end_lineno, last.end_col_offset  # type: ignore[attr-defined]
        lines = self._lines[line - 1 : first.lineno - 1]
        text = b"\n".join(lines)[col:] if lines else b""
        return _parts(text.decode())


def _parts(text: str) -> tuple[str, Span | None]:
    found = BEHIND.match(text)
    words = (found["text"] or "").rstrip() if found is not None else ""
    where = WHERE.fullmatch(words)
    if where is None:
        return words, None
    file, line = where["a"] or where["b"], where["n"] or where["m"]
    return where["text"] or "", Span(file, int(line))


__all__ = ["Comments"]
