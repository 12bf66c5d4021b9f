"""No path of the machine it was written on, no note to self, in any file that is kept."""

import re
import subprocess
from collections import Counter

import pytest
from sources import REPOSITORY

# Written apart, so that this file does not hold what it looks for.
PATHS = [f"/{root}/" for root in ("work", "root")]
NOTES = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]
FORBIDDEN = re.compile(
    "|".join([*(rf"(?<![\w.]){path}" for path in PATHS), *(rf"\b{n}\b" for n in NOTES)])
)
BINARY = {".png", ".pt", ".safetensors", ".npy"}


def kept():
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=REPOSITORY,
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git work tree")
    return [REPOSITORY / name for name in listed]


def test_no_traces():
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in kept()
        if path.is_file() and path.suffix not in BINARY
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_test_modules_have_names_of_their_own():
    """pytest imports them by their file names alone."""
    names = Counter(path.name for path in REPOSITORY.glob("tests/**/test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
