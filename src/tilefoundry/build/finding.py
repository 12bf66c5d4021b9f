"""What of a machine was looked for, and whether it is there."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: whether it is there, what was found, what it is for."""

    name: str
    there: bool
    found: str
    serves: str


def program(name: str, wanted: Sequence[str], serves: str) -> Finding:
    """The first program of those ``wanted`` that there is, and its version."""
    path = next(filter(None, map(shutil.which, wanted)), None)
    if path is None:
        return Finding(name, False, f"none of {' '.join(wanted)} on PATH", serves)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, False, f"{path}: {error}", serves)
    lines = [line for line in done.stdout.splitlines() if any(map(str.isdigit, line))]
    version = next((line for line in lines if "release" in line), lines[0] if lines else "")
    return Finding(name, done.returncode == 0, f"{path}: {version.strip()}", serves)


def cpuinfo() -> dict[str, str]:
    """The first processor's entries; empty where the system has no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    rows = [line.partition(":") for line in text.split("\n\n")[0].splitlines()]
    return {key.strip(): value.strip() for key, _, value in rows}


def model() -> str:
    """The processor's name."""
    return cpuinfo().get("model name") or platform.processor() or platform.machine()


__all__ = ["Finding", "cpuinfo", "model", "program"]
