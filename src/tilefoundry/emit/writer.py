"""Lines of source, each with the author's line that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilefoundry.diag import Span

STEP = "    "


@dataclass
class Writer:
    """Source under construction: indentation, blocks, unique names, the author's place."""

    lines: list[tuple[str, Span | None]] = field(
        default_factory=lambda: list[tuple[str, Span | None]]()
    )
    names: set[str] = field(default_factory=lambda: set[str]())
    own: tuple[str, ...] = ()
    """How names begin that the language or our runtime has for itself."""
    depth: int = 0
    span: Span | None = None

    def line(self, text: str = "") -> None:
        """One line at the present indentation."""
        self.lines.append((STEP * self.depth + text if text else "", self.span))

    def note(self, text: str) -> None:
        """A comment for the reader."""
        self.line(f"/* {text.replace('*/', '* /')} */")

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """``head {``, what is written inside one step deeper, ``tail``."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
        self.line(tail)

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """What is written inside comes from ``span``."""
        before = self.span
        self.span = span or before
        yield
        self.span = before

    def name(self, wanted: str) -> str:
        """``wanted``, or with a number behind it where that is taken."""
        plain = wanted.isidentifier() and wanted.isascii() and not wanted.startswith(self.own)
        stem = wanted if plain else "value"
        made, n = stem, 2
        while made in self.names:
            made, n = f"{stem}_{n}", n + 1
        self.names.add(made)
        return made

    def text(self) -> str:
        """For a reader."""
        return "\n".join(line for line, _ in self.lines) + "\n"

    def mapped(self) -> str:
        """For a compiler and a debugger: ``#line`` leads each line back to the author's."""
        out: list[str] = []
        name, here = "", 0
        for text, span in self.lines:
            if span is not None and not text.lstrip().startswith("#"):
                if (name, here) != (span.file, span.line):
                    out.append(f'#line {span.line} "{_escaped(span.file)}"')
                name, here = span.file, span.line
            out.append(text)
            here += 1
        return "\n".join(out) + "\n"


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')
