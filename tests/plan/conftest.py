"""Asking for plans of a program given as text."""

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.plan.ask import ask


@pytest.fixture
def plans(tmp_path):
    """``plans(text, best)``: the loaded program and the answer."""

    def run(text, best=6, name="program.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        loaded = load_source(str(path), None, {})
        return loaded, ask(loaded, {}, best)

    return run
