"""The judge on a device: the jail has CUDA, the clock sees work on other streams."""

import pytest
import torch

from tilefoundry.diag import Refusal
from tilefoundry.judge import check
from tilefoundry.judge.jail.enter import DEGRADED
from tilefoundry.judge.measure.request import Request as Measurement
from tilefoundry.judge.measure.session import measure
from tilefoundry.judge.request import Judged, Request
from tilefoundry.judge.stated import Predicate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA device"),
]
TWIN = """
import torch
from tilefoundry.dsl import *
from tilefoundry.runtime import runtime_func, runtime_module
from tilefoundry.target import CudaTarget

@module(entry="f", target=CudaTarget("nvidia.h200_sxm"))
class Program:
    @func
    def f(x: Tensor[(2048, 2048), "f32"]):
        return x * x + x

@runtime_module(Program)
class Twin:
    def __init__(self):
        self._side = torch.cuda.Stream()

    @runtime_func
    def f(self, x):
        {body}
"""
EQUAL = [Judged("output", (Predicate("equal"),))]
HONEST = "return x * x + x"
ASIDE = "with torch.cuda.stream(self._side):\n            return x * x + x"


@pytest.fixture
def twin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(body):
        (tmp_path / "twin.py").write_text(TWIN.replace("{body}", body))
        return "twin.py"

    return write


def test_a_jailed_twin_computes_on_the_device(twin):
    report = check.check(Request(twin(HONEST), "Twin.f", EQUAL, device="cuda"))
    assert report.agrees
    assert not report.isolation["calls"].startswith(DEGRADED)


def test_a_measurement_and_its_clocks(twin):
    report = measure(Measurement(twin(HONEST), "Twin.f", EQUAL, device="cuda", processes=1, runs=3))
    (side,) = report.sides
    for data in ("cold", "warm"):
        clocks = side.clocks[data]
        assert side.data[data].median > 0 and clocks["device"] <= clocks["process"]
    assert report.devices[0]["driver"]


def test_work_on_a_stream_that_nobody_waits_for_is_refused(twin):
    with pytest.raises(Refusal) as caught:
        measure(Measurement(twin(ASIDE), "Twin.f", EQUAL, device="cuda", processes=1, runs=3))
    assert caught.value.diags[0].code in ("measure-clock", "measure-implausible", "measure-wrong")
