"""Every cheat is refused for what it is, every honest twin passes."""

from __future__ import annotations

import pytest

from judge.cheats.catalogue import TWINS
from judge.cheats.twins import judged, write_program
from judge.shared import Bench

SHARED = [twin for twin in TWINS if not twin.alone]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cheats")
    write_program(made)
    return made


@pytest.fixture(scope="module")
def bench():
    made = Bench()
    yield made
    made.close()


def test_names_are_of_one_twin_each():
    assert len({twin.name for twin in TWINS}) == len(TWINS)


@pytest.mark.parametrize("twin", [t for t in SHARED if not t.honest], ids=lambda t: t.name)
def test_cheats_are_caught(twin, folder, bench):
    assert judged(twin, folder, bench) in twin.verdicts


@pytest.mark.parametrize("twin", [t for t in SHARED if t.honest], ids=lambda t: t.name)
def test_honest_twins_pass(twin, folder, bench):
    assert judged(twin, folder, bench) == "agrees"
