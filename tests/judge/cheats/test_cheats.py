"""Every cheat is refused for what it is, every honest twin passes."""

from __future__ import annotations

import pytest

from judge.cheats.attacks import ATTACKS
from judge.cheats.catalogue import TWINS
from judge.cheats.outsiders import OUTSIDERS
from judge.cheats.programs import HIRS
from judge.cheats.twins import judged, write_program
from judge.shared import Bench

EVERY = [*TWINS, *ATTACKS, *OUTSIDERS]
SHARED = [twin for twin in EVERY if not twin.alone]
ALONE = ("patched_judge", "reference_edited", "from_a_copy_of_it", "answers_ahead")
"""Of those that need processes of their own, one of each kind; bench/judge.py has all."""
PROGRAMS = ("hir_evaluator_patched", "hir_untyped_program", "hir_kept_answer",
            "hir_kernel_replaced", "hir_with_state_of_its_own")  # fmt: skip
"""Of the HIR files, as well: what one executes stays in the process that executes it."""


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
    everyone = [twin.name for twin in (*EVERY, *HIRS)]
    assert len(set(everyone)) == len(everyone)


@pytest.mark.parametrize("twin", [t for t in SHARED if not t.honest], ids=lambda t: t.name)
def test_cheats_are_caught(twin, folder, bench):
    assert judged(twin, folder, bench) in twin.verdicts


@pytest.mark.parametrize("twin", [t for t in SHARED if t.honest], ids=lambda t: t.name)
def test_honest_twins_pass(twin, folder, bench):
    assert judged(twin, folder, bench) == "agrees"


@pytest.mark.parametrize("twin", [t for t in EVERY if t.name in ALONE], ids=lambda t: t.name)
def test_cheats_that_harm_their_process(twin, folder):
    assert judged(twin, folder) in twin.verdicts


@pytest.mark.parametrize("twin", [t for t in HIRS if t.name in PROGRAMS], ids=lambda t: t.name)
def test_programs_that_reach_for_the_judge(twin, folder):
    assert judged(twin, folder) in twin.verdicts
