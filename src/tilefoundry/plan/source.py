"""The author's source around a site: statements, their words, and edits of lines."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from tokenize import COMMENT, generate_tokens

from tilefoundry.diag import Span
from tilefoundry.ir.node import Node, nodes
from tilefoundry.lang.source import source_file
from tilefoundry.plan.site import Site


class Unwritable(Exception):
    """The source around the site has no place for the plan's text; ``why`` in words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class Edit:
    """Lines ``first`` to ``last`` (from 1) become ``lines``."""

    first: int
    last: int
    lines: tuple[str, ...]


def applied(text: str, edits: Sequence[Edit]) -> str:
    """``text`` with every edit in place."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: -e.first):
        lines[edit.first - 1 : edit.last] = edit.lines
    return "\n".join(lines)


class Author:
    """What the author wrote around one site."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.file = source_file(site.func.span.file)
        self.path: list[ast.AST] = []
        assert site.loop.span is not None
        self.loop = self._find(site.loop.span.line)

    def _find(self, line: int) -> ast.For:
        """The loop's statement; ``path`` gets what is around it, outermost first."""
        at: ast.AST = self.file.tree
        while True:
            inner = [
                n
                for n in ast.iter_child_nodes(at)
                if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)
            ]
            assert inner, f"no statement at line {line}"
            at = inner[0]
            if isinstance(at, ast.For) and at.lineno == line:
                return at
            self.path.append(at)

    @cached_property
    def names(self) -> set[str]:
        """Names that the file uses, without those of the statements that a plan replaces."""
        found = {n.id for n in ast.walk(self.file.tree) if isinstance(n, ast.Name)}
        found |= {a.arg for a in ast.walk(self.file.tree) if isinstance(a, ast.arg)}
        result = self.site.result
        replaced = [*nodes(self.site.loop.body), *result.copies]
        return found - {n.name for n in replaced}

    def fresh(self, stem: str) -> str:
        """``stem``, or with a number behind it, that nobody uses."""
        name, n = stem, 2
        while name in self.names:
            name, n = f"{stem}_{n}", n + 1
        return name

    def words(self, at: ast.AST | Span) -> str:
        """The source text of a node; continued lines are joined, without their comments."""
        span = at if isinstance(at, Span) else _span(at)
        rows = self.file.lines[span.line - 1 : span.end_line]
        cut = [r.encode() for r in rows]
        cut[-1] = cut[-1][: span.end_col]
        cut[0] = cut[0][span.col :]
        return " ".join(row.strip() for row in _uncommented([r.decode() for r in cut]))

    def indent(self, stmt: ast.stmt) -> str:
        return " " * stmt.col_offset

    # ---- statements

    @property
    def block(self) -> list[ast.stmt]:
        """The statements among which the loop stands."""
        for body in _bodies(self.path[-1]):
            if self.loop in body:
                return body
        raise AssertionError("the loop is in no block")

    @property
    def after(self) -> list[ast.stmt]:
        return self.block[self.block.index(self.loop) + 1 :]

    def scopes(self) -> list[ast.With]:
        return [n for n in self.path if isinstance(n, ast.With)]

    def holds(self, stmt: ast.stmt, node: Node) -> bool:
        """Whether ``node`` was made by ``stmt``."""
        span = node.span
        if span is None:
            return False
        start = (stmt.lineno, stmt.col_offset)
        end = (stmt.end_lineno or 0, stmt.end_col_offset or 0)
        return start <= (span.line, span.col) and (span.end_line, span.end_col) <= end

    def makes(self, node: Node) -> ast.stmt:
        """The statement that makes ``node``, with a scope that holds nothing else."""
        chain: list[ast.stmt] = []
        level: Sequence[ast.AST] = [self.file.tree]
        while level:
            inner = [n for b in level for n in _children(b) if self.holds(n, node)]
            if not inner:
                break
            chain.append(inner[0])
            level = inner
        if not chain:
            raise Unwritable(f"{node.name or node.op.name} is made elsewhere")
        out = chain.pop()
        while chain and isinstance(chain[-1], ast.With) and len(chain[-1].body) == 1:
            if chain[-1] in self.path:
                break
            out = chain.pop()
        return out

    def call(self, node: Node) -> ast.Call:
        """The call that made ``node``."""
        span = node.span
        for at in ast.walk(self.makes(node)):
            if isinstance(at, ast.Call) and span is not None and _span(at) == _bare(span):
                return at
        raise Unwritable(f"{node.name or node.op.name} is not written as a call")

    def lines(self, stmt: ast.stmt, indent: str) -> list[str]:
        """The lines of a statement, moved to ``indent``."""
        rows = self.file.lines[stmt.lineno - 1 : stmt.end_lineno]
        cut = stmt.col_offset
        return [indent + (r[cut:] if not r[:cut].strip() else r.strip()) for r in rows]

    # ---- words for extents

    def extents(self, node: Node) -> tuple[str, ...]:
        """Each extent of a slice as the author names it: ``BM`` of ``m:m + BM``, the step of
        a window's loop; else the number."""
        shape = tuple(str(e) for e in node.tensor.shape)
        span = node.span
        found = next(
            (
                n
                for n in ast.walk(self.loop)
                if isinstance(n, ast.Subscript) and span is not None and _span(n) == _bare(span)
            ),
            None,
        )
        if found is None:
            return shape
        items = found.slice.elts if isinstance(found.slice, ast.Tuple) else [found.slice]
        if len(items) != len(shape):
            return shape
        return tuple(self._extent(i) or e for i, e in zip(items, shape, strict=True))

    def _extent(self, item: ast.expr) -> str:
        head = self.loop.iter
        if isinstance(item, ast.Name) and ast.unparse(self.loop.target) == item.id:
            if isinstance(head, ast.Call) and len(head.args) == 2:
                return self._simple(head.args[1])
            return ""
        if not isinstance(item, ast.Slice) or item.step or item.upper is None:
            return ""
        if item.lower is None:
            return self._simple(item.upper)
        upper = item.upper
        if not isinstance(upper, ast.BinOp) or not isinstance(upper.op, ast.Add):
            return ""
        return self._simple(upper.right) if ast.dump(upper.left) == ast.dump(item.lower) else ""

    def _simple(self, node: ast.expr) -> str:
        """A name or a number: what stays the same wherever it is written."""
        return self.words(node) if isinstance(node, (ast.Name, ast.Constant)) else ""

    def topologies(self) -> ast.expr:
        """The module's ``topologies=``."""
        for cls in (n for n in self.path if isinstance(n, ast.ClassDef)):
            for call in cls.decorator_list:
                if isinstance(call, ast.Call):
                    for keyword in call.keywords:
                        if keyword.arg == "topologies":
                            return keyword.value
        raise Unwritable("the module's topologies are not written beside it")

    def replaced(self, node: ast.expr, words: str) -> Edit:
        """The lines of ``node`` with other words in its place."""
        span = _span(node)
        first = self.file.lines[span.line - 1].encode()[: span.col].decode()
        last = self.file.lines[span.end_line - 1].encode()[span.end_col :].decode()
        return Edit(span.line, span.end_line, (f"{first}{words}{last}",))


def _uncommented(rows: list[str]) -> list[str]:
    """The rows of one expression without the comments at their ends."""
    text = "\n".join(["(", *rows, ")"])  # in parentheses, so that a row may end anywhere
    for token in generate_tokens(StringIO(text).readline):
        if token.type == COMMENT:
            row, column = token.start
            rows[row - 2] = rows[row - 2][:column]
    return rows


def _span(node: ast.AST) -> Span:
    return Span("", node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _bare(span: Span) -> Span:
    return Span("", span.line, span.col, span.end_line, span.end_col)


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    return [b for word in ("body", "orelse") if (b := getattr(node, word, None))]


def _children(node: ast.AST) -> list[ast.stmt]:
    return [n for b in _bodies(node) for n in b if isinstance(n, ast.stmt)]
