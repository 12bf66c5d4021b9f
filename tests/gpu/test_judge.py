"""Cheats and honest twins on a device."""

from __future__ import annotations

import pytest
import torch

from judge.cheats.catalogue import DEVICE
from judge.cheats.devices import DEVICE_ATTACKS
from judge.cheats.twins import judged, write_program
from judge.shared import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cheats")
    write_program(made)
    return made


@pytest.fixture(scope="module")
def bench():
    made = Bench("cuda")
    yield made
    made.close()


@pytest.mark.parametrize("twin", [*DEVICE, *DEVICE_ATTACKS], ids=lambda twin: twin.name)
def test_twins_on_a_device(twin, folder, bench):
    assert judged(twin, folder, bench) in twin.verdicts
