"""Generated schedules: accepted by the verifier, right under every order of execution."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from tilefoundry.interpret import POLICIES, run
from tilefoundry.lower.allocate import place_barriers
from tilefoundry.lower.sync import synchronise
from tilefoundry.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from generate import generate

SEEDS = range(36)


@cache
def case(seed):
    made = generate(seed)
    return made, place_barriers(synchronise(made.func))


def operands(made, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(-2, 3, shape, generator=generator).to(getattr(torch, dtype))
        for shape, dtype in made.shapes
    ]


DIVIDED = (928, 2184, 3411, 4238, 5506, 6030)
"""A scope of one warp divides a warpgroup that issues wgmma."""


@pytest.mark.parametrize("seed", [*range(160), *DIVIDED])
def test_accepted_by_the_verifier(seed):
    _, func = case(seed)
    found = [f for f in verify(func) if f.code != "device-unwritten"]
    assert found == []


@pytest.mark.parametrize("seed", SEEDS)
def test_right_under_adversarial_orders(seed):
    torch.set_num_threads(1)
    made, func = case(seed)
    given = operands(made, seed)
    wanted = made.reference(given)
    policy = POLICIES[seed % len(POLICIES)]
    found = run(func, given, seed=seed, policy=policy)
    wrong = [r for r in found.reports if not str(r).startswith("uninitialised")]
    assert wrong == []
    for got, want in zip(found.outputs, wanted, strict=True):
        written = ~torch.isnan(want)
        assert torch.equal(got[written], want[written])
