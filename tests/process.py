"""How tests start processes: the environment they get, the answer they give."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tilefoundry

SOURCES = str(Path(tilefoundry.__file__).parents[1])


@dataclass(frozen=True)
class Answer:
    """What one process printed and how it ended."""

    stdout: str
    stderr: str
    code: int


def environment(**extra: str) -> dict[str, str]:
    """The process's environment, without what changes an answer's form."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TILEFOUNDRY_DEBUG", "COLUMNS")}
    return {**kept, "PYTHONPATH": SOURCES, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **extra}
