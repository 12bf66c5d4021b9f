"""What commands take: SOURCE, constants, extents, and the shared options as decorators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import click

from tilefoundry.diag import refuse

F = TypeVar("F", bound=Callable[..., Any])

SOURCE = re.compile(r"(?P<path>.+?\.py)(?::(?P<selector>.*))?", re.DOTALL)
SELECTOR = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
EXTENT = re.compile(r"(?P<low>\d+)(?:\.\.(?P<high>\d+)(?::(?P<step>[1-9]\d*))?)?")
MOST_EXTENTS = 10_000
"""Values that one ``--dim`` may list; a longer sweep is a mistake or a job for a script."""


@dataclass(frozen=True, slots=True)
class Source:
    """``file.py``, ``file.py:Module`` or ``file.py:Module.func``; the selector is unresolved."""

    path: str
    selector: str | None

    def __str__(self) -> str:
        return self.path if self.selector is None else f"{self.path}:{self.selector}"


def parse_source(text: str) -> Source:
    """Split SOURCE into file and selector; refuses with ``source-malformed``."""
    found = SOURCE.fullmatch(text)
    if not found:
        refuse("source-malformed", source=text, why="it does not name a .py file")
    selector = found["selector"]
    if selector is not None and not SELECTOR.fullmatch(selector):
        refuse("source-malformed", source=text, why=f"{selector!r} is not a dotted name")
    return Source(found["path"], selector)


def parse_consts(assignments: tuple[str, ...]) -> dict[str, object]:
    """``N=V`` of each ``--const``: an int, a float, True, False, or else a string."""
    values: dict[str, object] = {}
    for text in assignments:
        name, written = _assignment("--const", text)
        value = _value(written)
        if values.get(name, value) != value:
            refuse("option-malformed", option="--const", text=text, form="one value per name")
        values[name] = value
    return values


def parse_dims(assignments: tuple[str, ...]) -> dict[str, list[int]]:
    """``N=V`` of each ``--dim``; V is extents and ranges: ``37``, ``0,1,37``, ``0..64:16``.

    A range includes both ends. A name given twice collects the values of both, in the
    order written and each once.
    """
    values: dict[str, list[int]] = {}
    for text in assignments:
        name, written = _assignment("--dim", text)
        known = values.setdefault(name, [])
        for part in written.split(","):
            found = EXTENT.fullmatch(part.strip())
            if not found:
                form = "extents as 37, 0,1,37 or 0..64:16"
                refuse("option-malformed", option="--dim", text=text, form=form)
            low = int(found["low"])
            high = int(found["high"] or low)
            extents = range(low, high + 1, int(found["step"] or 1))
            if high < low or high - low >= MOST_EXTENTS * extents.step:
                form = f"a range of 1 to {MOST_EXTENTS} extents"
                refuse("option-malformed", option="--dim", text=text, form=form)
            known += [extent for extent in extents if extent not in known]
    return values


def one_each(dims: Mapping[str, list[int]]) -> dict[str, int]:
    """The one extent of each name, for commands that answer for one shape at a time."""
    for name, extents in dims.items():
        if len(extents) != 1:
            text = f"{name}={','.join(map(str, extents))}"
            refuse("option-malformed", option="--dim", text=text, form="one extent per name")
    return {name: extents[0] for name, extents in dims.items()}


def _assignment(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier() or not value.strip():
        refuse("option-malformed", option=option, text=text, form="NAME=VALUE")
    return name.strip(), value.strip()


def _value(text: str) -> object:
    for read in (lambda: int(text, 0), lambda: float(text)):
        try:
            return read()
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def _parsed(parse: Callable[[Any], object]) -> Callable[..., object]:
    return lambda context, parameter, value: parse(value)


def source_argument(function: F) -> F:
    """Adds ``source: Source``."""
    return click.argument("source", metavar="SOURCE", callback=_parsed(parse_source))(function)


def out_argument(metavar: str = "[OUT]", *, program: bool = False) -> Callable[[F], F]:
    """Adds ``out: str | None``: a file, before or after the options; absent or ``-`` is stdout.
    Unless it is a ``program`` that is written, no Python file is replaced (``output-program``).
    """
    read = None if program else _parsed(no_program)
    return click.argument("out", required=False, metavar=metavar, callback=read)


def no_program(out: str | None) -> str | None:
    """``out``, unless it is a Python file that is there."""
    if out is not None and out.endswith(".py") and os.path.exists(out):
        keep_program(out)
    return out


def keep_program(path: str) -> NoReturn:
    """Refuse to put an answer in the place of a program."""
    refuse("output-program", path=path, other=f"{path.removesuffix('.py')}.txt")


def const_option(function: F) -> F:
    """Adds ``consts: dict[str, object]``."""
    words = "Give the module-level constant N the value V, as for a reduced size. Repeatable."
    read = _parsed(parse_consts)
    return click.option(
        "--const", "consts", multiple=True, metavar="N=V", help=words, callback=read
    )(function)


def dim_option(function: F) -> F:
    """Adds ``dims: dict[str, list[int]]``; see :func:`parse_dims`, :func:`one_each`."""
    words = "Bind the open extent N to V; `check` also takes lists and ranges, 0,1,37 or 0..64:16."
    read = _parsed(parse_dims)
    return click.option("--dim", "dims", multiple=True, metavar="N=V", help=words, callback=read)(
        function
    )


def json_option(function: F) -> F:
    """Adds ``as_json: bool``."""
    return click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")(
        function
    )
