"""The report as one record: lines of key=value facts; text and JSON both derive from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tilefoundry.analyze.figure import UNDECIDED, Figure
from tilefoundry.diag import Diag
from tilefoundry.ir.expr import Dim, Expr
from tilefoundry.quantity import bytes_text, time_text

COUNT, BYTE, SECOND, PERCENT, WORD, QUOTED = "count", "byte", "s", "percent", "word", "text"
"""Units that are written in a form of their own; any other is written after the number."""


@dataclass(frozen=True)
class Item:
    """``key=value``; the value is raw (bytes, seconds, counts), ``unit`` says what it is."""

    key: str
    value: Dim | Fraction | str | None
    unit: str = WORD

    def text(self) -> str:
        return f"{self.key}={self._shown()}"

    def _shown(self) -> str:
        value = self.value
        if value is None:
            return UNDECIDED
        if isinstance(value, Expr):
            shown = str(value).replace(" ", "")
            return f"({shown})B" if self.unit == BYTE else shown
        if isinstance(value, str):
            return f'"{value}"' if self.unit == QUOTED else value.replace(" ", "")
        if self.unit == BYTE:
            return bytes_text(value)
        if self.unit == SECOND:
            return time_text(value)
        if self.unit == PERCENT:
            return f"{value}%"
        shown = str(value) if isinstance(value, int) else f"{float(value):.4g}"
        return shown if self.unit == COUNT else shown + self.unit

    def raw(self) -> object:
        """The value for JSON: whole numbers stay whole, symbolic ones are strings."""
        if isinstance(self.value, Expr):
            return str(self.value)
        return float(self.value) if isinstance(self.value, Fraction) else self.value


@dataclass(frozen=True)
class Line:
    """One fact: a family word and its items."""

    family: str
    items: tuple[Item, ...]

    def text(self) -> str:
        return " ".join([self.family, *(i.text() for i in self.items)]).strip()

    def record(self) -> dict[str, object]:
        return {"family": self.family, **{i.key: i.raw() for i in self.items}}


@dataclass
class Row:
    """One line of the author's source and the facts about it."""

    number: int
    source: str
    facts: list[Line] = field(default_factory=list)

    def record(self) -> dict[str, object]:
        return {"line": self.number, "source": self.source, "facts": self.facts}


@dataclass
class Report:
    """The head, the annotated listing, what was refused, what stayed undecided."""

    source: str
    module: str
    function: str
    target: str
    families: Sequence[str]
    head: list[Line]
    rows: list[Row]
    findings: list[Diag]
    undecided: list[str]
    exit: int

    def record(self) -> dict[str, object]:
        return {
            "source": self.source,
            "module": self.module,
            "function": self.function,
            "target": self.target,
            "families": list(self.families),
            "head": self.head,
            "listing": self.rows,
            "findings": self.findings,
            "undecided": self.undecided,
        }

    def text(self) -> str:
        """Head lines, then the author's lines, each followed by its facts."""
        out = [f"# {line.text()}" for line in self.head]
        for row in self.rows:
            out.append(row.source)
            out += [f"#   {fact.text()}" for fact in row.facts]
        return "\n".join(out) + "\n"


def word(key: str, value: str) -> Item:
    return Item(key, value)


def number(key: str, figure: Figure | int, unit: str = COUNT) -> Item:
    """A figure as an item; undecided ones have no value."""
    return Item(key, figure.value if isinstance(figure, Figure) else figure, unit)


def precise(*figures: Figure) -> tuple[Item, ...]:
    """``precision=`` of figures on one line, and the reason where there is one."""
    from tilefoundry.analyze.figure import joined

    kind = joined(f.precision for f in figures)
    reason = next((f.reason for f in figures if f.reason), "")
    items = (Item("precision", kind),)
    return (*items, Item("reason", reason, QUOTED)) if reason else items
