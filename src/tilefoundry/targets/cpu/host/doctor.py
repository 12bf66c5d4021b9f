"""Which of the instructions that our documents name this machine's CPU has."""

from __future__ import annotations

import platform
from pathlib import Path

from tilefoundry.build.finding import Finding
from tilefoundry.build.machine import ALWAYS, features
from tilefoundry.targets import Architecture
from tilefoundry.targets.load import documents, load_document

FOLDER = Path(__file__).parents[1]
PLAIN = {*ALWAYS, platform.machine()}
"""Capabilities that are no unit's."""


def findings() -> list[Finding]:
    """The vector and tile units."""
    known: dict[str, None] = {}
    for found in documents():
        if found.place == "shipped" and found.path.is_relative_to(FOLDER):
            document = load_document(found.id)
            if isinstance(document, Architecture):
                known |= dict.fromkeys(document.capabilities)
    have = [name for name in known if name in (features() or ()) and name not in PLAIN]
    return [Finding("vector units", bool(have), " ".join(have) or "none known", "")]
