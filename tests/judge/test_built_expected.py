"""A kernel held to a file: its schedule, which evaluates for minutes, is not evaluated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello_cpu.py"


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="needs a C compiler")
def test_a_kernel_is_held_to_a_file_alone(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.randn(1, 4096, 2048).half()
    torch.save(x, tmp_path / "x.pt")
    torch.save((x * x + x) * x, tmp_path / "expected.pt")
    line = [
        "check", "--json", "--built", "--inputs", "files:x.pt", "--expected", "expected.pt",
        "--device", "cpu", "--out", "output", "--fn", "equal",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tilefoundry", line[0], str(EXAMPLE), *line[1:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]
    assert "the reference is not evaluated" in done.stdout
