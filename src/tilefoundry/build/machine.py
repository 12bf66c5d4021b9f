"""Which capabilities of a CPU target this machine lacks."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

ALWAYS = frozenset(["c11"])
"""Capabilities of compilers, not of machines."""


@cache
def features() -> frozenset[str] | None:
    """The instruction families of this machine; None where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset([*value.split(), platform.machine()])
    return None


def missing(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``capabilities`` that this machine is known to lack."""
    have = features()
    if have is None:
        return ()
    return tuple(c for c in capabilities if c not in have and c not in ALWAYS)
