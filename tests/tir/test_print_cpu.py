"""CPU programs printed: as their authors wrote them, and read back to the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.tir.equal import record
from tilefoundry.tir.parse import parse_program
from tilefoundry.tir.printer import print_program

FOLDER = Path(__file__).parents[1] / "programs_cpu"
PROGRAMS = sorted(p for p in FOLDER.glob("*.py") if "@module" in p.read_text())
TARGET = re.compile(r"^    target=(\w+)\(", re.M)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_names_its_target_as_the_author_did(path):
    loaded = load_source(str(path), None, {})
    program = lower(loaded.module, loaded.func or "")
    text = print_program(program)
    assert TARGET.findall(text) == TARGET.findall(path.read_text())
    assert record(parse_program(text, "tir.py")) == record(program)
