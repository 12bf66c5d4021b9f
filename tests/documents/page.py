"""Reading a shipped page: its fenced blocks, and a console block's commands and answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"(?P<marks>```+|~~~+)(?P<info>.*)")
EXIT = re.compile(r"\[exit (?P<code>\d+)\]")


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, its text, its first line's number.

    ``section`` is the nearest ``##`` heading above it, empty before the first.
    """

    info: tuple[str, ...]
    text: str
    line: int
    section: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def file(self) -> str | None:
        """The name under which the block is saved (``file=chain.py``)."""
        names = [word.removeprefix("file=") for word in self.info if word.startswith("file=")]
        return names[0] if names else None


@dataclass(frozen=True)
class Command:
    """One ``$ line`` of a console block with the answer and exit code it must have."""

    line: str
    answer: tuple[str, ...]
    code: int
    number: int


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    section, marks, info, start, lines = "", "", (), 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if marks and fence and fence["marks"] == marks and not fence["info"].strip():
            found.append(Block(info, "".join(f"{text}\n" for text in lines), start, section))
            marks = ""
        elif marks:
            lines.append(line)
        elif fence:
            marks, info, start, lines = fence["marks"], tuple(fence["info"].split()), number + 1, []
        elif line.startswith("## "):
            section = line[3:].strip()
    assert not marks, f"{path}: the block that starts at line {start} is not closed"
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends in ``\\`` goes on with the next."""
    found: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        assert lines[at].startswith("$ "), f"line {block.line + at}: a console block starts with $"
        number, line = block.line + at, lines[at][2:]
        while line.endswith("\\"):
            at += 1
            line = line[:-1] + lines[at].lstrip()
        at += 1
        answer: list[str] = []
        while at < len(lines) and not lines[at].startswith("$ "):
            answer.append(lines[at])
            at += 1
        ended = EXIT.fullmatch(answer[-1]) if answer else None
        code = int(ended["code"]) if ended else 0
        found.append(Command(line, tuple(answer[:-1] if ended else answer), code, number))
    return found


def matches(expected: tuple[str, ...], seen: list[str]) -> bool:
    """Whether ``seen`` is what a page shows.

    A line ``...`` stands for any number of lines, ``[..]`` within a line for any text.
    """
    patterns = [
        r"(?:.*\n)*?"
        if line == "..."
        else ".*".join(re.escape(part.rstrip()) for part in line.split("[..]")) + r"\n"
        for line in expected
    ]
    return re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in seen)) is not None
