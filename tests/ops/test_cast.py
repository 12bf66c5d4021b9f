"""What is too large for an fp8e4m3 is the largest, whatever torch's own conversion makes of it."""

from __future__ import annotations

import pytest
import torch

from tilefoundry.ir.dtype import DTYPES
from tilefoundry.ir.types import TensorType
from tilefoundry.ops.base import torch_dtype
from tilefoundry.ops.cast import OP

LARGE = {
    "f32": [448.0, 464.0, 465.0, 480.0, 1e30, float("inf")],
    "f64": [448.0, 465.0, 1e300, float("inf")],
    "f16": [448.0, 480.0, 65504.0, float("inf")],
    "bf16": [448.0, 480.0, 1e30, float("inf")],
    "fp8e5m2": [448.0, 512.0, 57344.0, float("inf")],
    "i32": [448, 449, 2**31 - 1],
    "i64": [449, 2**62],
}


def cast(x, name):
    return OP.evaluate([x], {"dtype": DTYPES[name]}, TensorType(tuple(x.shape), DTYPES[name]))


@pytest.mark.parametrize("name", LARGE)
def test_the_largest(name):
    x = torch.tensor(LARGE[name]).to(torch_dtype(DTYPES[name]))
    for given, want in ((x, 448.0), *([] if name == "fp8e5m2" else [(-x, -448.0)])):
        got = cast(given, "fp8e4m3")
        assert got.dtype is torch.float8_e4m3fn
        assert got.float().tolist() == [want] * len(LARGE[name])


def test_nan_stays_and_what_fits_is_rounded():
    x = torch.tensor([float("nan"), 0.0, -0.0, 1.0625, 1.1875, -300.0, 2.0**-9, 2.0**-11])
    got = cast(x, "fp8e4m3").float()
    assert got[0].isnan()
    assert got[1:].tolist() == [0.0, 0.0, 1.0, 1.25, -288.0, 2.0**-9, 0.0]


def test_other_floats_have_an_infinity():
    x = torch.tensor([1e30, float("inf")])
    assert cast(x, "f16").tolist() == [float("inf")] * 2
    assert cast(x, "fp8e5m2").float().tolist() == [float("inf")] * 2
