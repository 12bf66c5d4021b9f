"""Diagnostics as data: source spans, refusals, and their rendering.

A refusal names a *code*; the words of a code live on its page
``tilefoundry/codes/<code>.md``, whose head holds the templates of the message.
Everybody may import this module; it imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

ACCEPTED, REFUSED, USAGE, UNDECIDED, ENVIRONMENT, TIMEOUT, BUG = 0, 1, 2, 3, 4, 5, 70
"""Exit codes of the command: accepted; refused or disagrees; usage; undecided or
unsupported; environment; out of time; our bug."""

CODES = Path(__file__).parent / "codes"
HEAD_KEYS = ("exit", "says", "expected", "found", "fix")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text; lines count from 1, columns from 0."""

    file: str
    line: int
    col: int = 0
    end_line: int = 0
    end_col: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Page:
    """One code's page: exit code, message templates (``str.format``), prose."""

    code: str
    exit: int
    says: str
    expected: str
    found: str
    fix: str
    body: str


@dataclass(frozen=True)
class Diag:
    """One refusal: code, where, the fields of its templates, further notes."""

    code: str
    span: Span | None = None
    fields: Mapping[str, object] = field(default_factory=lambda: dict[str, object]())
    notes: tuple[str, ...] = ()

    def _fill(self, template: str) -> str:
        return template.format_map({k: str(v) for k, v in self.fields.items()})

    @property
    def exit(self) -> int:
        return page(self.code).exit

    @property
    def says(self) -> str:
        return self._fill(page(self.code).says)

    @property
    def expected(self) -> str:
        return self._fill(page(self.code).expected)

    @property
    def found(self) -> str:
        return self._fill(page(self.code).found)

    @property
    def fix(self) -> str:
        return self._fill(page(self.code).fix)

    def text(self) -> str:
        """The refusal as lines a reader can grep."""
        where = f"{self.span}: " if self.span else ""
        lines = [f"{where}refused [{self.code}] {self.says}"]
        words = {key: getattr(self, key) for key in ("expected", "found", "fix")}
        lines += [f"  {key + ':':<10}{text}" for key, text in words.items() if text]
        lines += [f"  {'note:':<10}{note}" for note in self.notes]
        return "\n".join(map(visible, lines))

    def record(self) -> dict[str, object]:
        """The refusal as a JSON-able record."""
        span = self.span
        return {
            "code": self.code,
            "file": span.file if span else None,
            "line": span.line if span else None,
            "column": span.col if span else None,
            "says": self.says,
            "expected": self.expected,
            "found": self.found,
            "fix": self.fix,
            "notes": list(self.notes),
        }


def visible(text: str) -> str:
    """One statement of ours: further lines of it are indented, and what would move a terminal's
    cursor or turn the direction of writing is escaped. What others named can forge no line."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return kept.replace("\n", "\n" + " " * 12)


class Refusal(Exception):
    """Raised to refuse; carries one or more diagnostics."""

    def __init__(self, *diags: Diag) -> None:
        super().__init__(*diags)
        self.diags: tuple[Diag, ...] = diags

    def __str__(self) -> str:
        return "\n".join(d.text() for d in self.diags)

    @property
    def exit(self) -> int:
        return max((d.exit for d in self.diags), default=REFUSED)


def refuse(
    code: str, span: Span | None = None, *, notes: tuple[str, ...] = (), **fields: object
) -> NoReturn:
    """Raise a :class:`Refusal` for ``code``; ``fields`` fill the page's templates."""
    raise Refusal(Diag(code, span, fields, notes))


def codes() -> Iterator[str]:
    """All codes that have a page, sorted."""
    return iter(sorted(p.stem for p in CODES.glob("*.md")))


@cache
def page(code: str) -> Page:
    """The page of ``code``; a code without a page is a bug of ours (KeyError)."""
    path = CODES / f"{code}.md"
    if not path.is_file():
        raise KeyError(f"diagnostic code without a page: {code}")
    head, body = _split_head(path.read_text(encoding="utf-8"))
    values = dict.fromkeys(HEAD_KEYS, "") | head
    return Page(
        code,
        int(values["exit"] or REFUSED),
        values["says"],
        values["expected"],
        values["found"],
        values["fix"],
        body.strip() + "\n",
    )


def _split_head(text: str) -> tuple[dict[str, str], str]:
    _, head, body = text.split("---\n", 2)
    entries: dict[str, str] = {}
    for line in head.splitlines():
        key, _, value = line.partition(":")
        if key not in HEAD_KEYS:
            raise KeyError(f"unknown head key {key!r} on a diagnostic page")
        entries[key] = value.strip()
    return entries, body
