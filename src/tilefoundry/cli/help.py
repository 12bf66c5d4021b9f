"""What the help of every command ends with: its examples and its exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilefoundry.diag import ACCEPTED, BUG, ENVIRONMENT, REFUSED, TIMEOUT, UNDECIDED, USAGE

WIDTH = 100
"""Columns of a help text, the same on every terminal, so that it can be compared."""

EXITS: Mapping[int, str] = {
    ACCEPTED: "accepted",
    REFUSED: "refused or disagrees",
    USAGE: "usage",
    UNDECIDED: "undecided or unsupported",
    ENVIRONMENT: "the environment lacks something",
    TIMEOUT: "out of time",
    BUG: "a bug of ours",
}


def epilog(examples: Sequence[str], exits: Mapping[int, str] | None = None) -> str:
    """The end of a help text.

    ``examples`` are whole command lines; ``exits`` says what a code means for this
    command where that differs from the general meaning; all codes are listed.
    """
    meanings = {**EXITS, **(exits or {})}
    shown = "\n".join(f"  {line}" for line in examples)
    codes = "\n".join(f"  {code:<3} {meaning}" for code, meaning in meanings.items())
    # \b keeps click from re-filling a paragraph.
    return f"\b\nExamples:\n{shown}\n\n\b\nExit codes:\n{codes}"
