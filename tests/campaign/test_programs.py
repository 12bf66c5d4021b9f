"""Random programs: they load, print, read back, and mean what torch computes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from campaign_profile import campaign
from drawn import Program, programs
from hypothesis import given, note
from hypothesis import strategies as st

from roundtrip import parse, round_trip
from tilefoundry.evaluate import evaluate

FOLDER = Path(tempfile.mkdtemp(prefix="programs"))


def agrees(program: Program, found, want) -> None:
    """Results equal the expected ones: to the bit where every step is exact."""
    for var, a, b in zip(program.results, found, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if var.exact:
            assert torch.equal(a, b)
        else:
            near = 1e-3 if '"f32"' in program.text else 1e-9  # products by up to 8 in a row
            torch.testing.assert_close(a, b, rtol=near, atol=near)


@campaign(80, 2000)
@given(programs(), st.integers(0, 9))
def test_programs(program, seed):
    note(program.text)
    module = parse(program.text, FOLDER)
    inputs = program.tensors(seed)
    want = program.expected(inputs)
    agrees(program, evaluate(module, "f", inputs), want)
    text, again = round_trip(module, FOLDER)
    note(text)
    agrees(program, evaluate(again, "f", inputs), want)
