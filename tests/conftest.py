"""Shared by all tests: the golden files' fixture and the command's runner."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from process import Answer, environment
from warm import Warm, captured


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files from what is seen"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: text equals ``golden/<name>`` beside the test's file."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        known = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text != known:
            lines = difflib.unified_diff(
                known.splitlines(), text.splitlines(), str(path), "seen", lineterm=""
            )
            pytest.fail("\n".join(["differs from its golden file:", *lines]), pytrace=False)

    return compare


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    made = Warm()
    yield made
    made.close()


@pytest.fixture
def command(tmp_path: Path, warm: Warm) -> Callable[..., Answer]:
    """``command("explain", "usage")`` runs the command in the test's own folder, with
    variables of the environment by name."""

    def run(*args: str, **env: str) -> Answer:
        return Answer(*captured(warm, list(args), tmp_path, environment(**env)))

    return run


@pytest.fixture
def cold(tmp_path: Path) -> Callable[..., Answer]:
    """``command`` from a start of Python."""

    def run(*args: str, **env: str) -> Answer:
        line = [sys.executable, "-m", "tilefoundry", *args]
        done = subprocess.run(
            line,
            cwd=tmp_path,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        return Answer(done.stdout, done.stderr, done.returncode)

    return run
