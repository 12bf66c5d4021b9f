"""What prefetch says of a product's right operand is asked for as far ahead as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilefoundry.emit import emit
from tilefoundry.lang.load import load_source
from tilefoundry.lower.finalize import finalize

PROGRAM = Path(__file__).parents[1] / "programs_cpu" / "gemm_avx512.py"


@pytest.mark.parametrize("ahead", [1, 16])
def test_each_vector_is_asked_for_once_and_as_far_ahead_as_said(ahead):
    source = emit(finalize(load_source(str(PROGRAM), None, {"AHEAD": ahead}))[0])
    text = source.files["gemm.c"]
    asked = re.findall(r"__builtin_prefetch\((.*)\);", text)
    loaded = re.findall(r"= tf_load_f32\(((?:first|panels) .*)\);", text)
    assert len(asked) == len(loaded) == 16  # four vectors in each of four loops
    for later, now in zip(asked, loaded, strict=True):
        assert offset(later) - offset(now) == ahead * 64  # a step is a panel's row of 64


def offset(place: str) -> int:
    """The sum of the constant terms."""
    return sum(int(n) for n in re.findall(r" \+ (\d+)(?= \+|$)", place))
