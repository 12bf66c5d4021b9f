"""Golden transcripts: each file in ``golden/`` holds commands and their whole answers.

A new transcript is a new file with ``$ tilefoundry ...`` lines; ``--update-golden`` fills
in stdout, then ``[stderr]`` and its lines, then ``[exit N]``.
"""

import shlex
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
TRANSCRIPTS = sorted(path.name for path in GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name, command, golden):
    text = ""
    for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("$ tilefoundry"):
            continue
        answer = command(*shlex.split(line)[2:])
        text += f"{line}\n{answer.stdout}"
        text += f"[stderr]\n{answer.stderr}" if answer.stderr else ""
        text += f"[exit {answer.code}]\n"
    golden(name, text)
