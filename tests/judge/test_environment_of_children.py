"""What jailed processes inherit: whatever decides what a compiler makes, and nothing else."""

from __future__ import annotations

import pytest

from tilefoundry.judge.server import _environment

COMPILERS = [
    # nvcc's and gcc's manuals: the program, options put before and after, places of headers
    *("CC", "NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
]


@pytest.mark.parametrize("name", COMPILERS)
def test_compilers_in_a_jail_are_those_outside(monkeypatch, name):
    monkeypatch.setenv(name, "/as/outside")
    assert _environment()[name] == "/as/outside"


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD"])
def test_the_rest_stays_outside(monkeypatch, name):
    monkeypatch.setenv(name, "/as/outside")
    assert name not in _environment()
