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
        self._calls, self._kept = 0, None

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


KEPT = """self._calls += 1
        if self._calls < 4 or self._calls % 8 == 0:
            self._kept = x * x + x
        return self._kept.clone()"""
QUARTER = """import tilefoundry.targets.cuda.host.clock as clock
        if not hasattr(clock, "was"):
            clock.was = clock.Clock.time
            def told(self, *args, **more):
                found = clock.was(self, *args, **more)
                return {**found, "ns": found["ns"] // 4}
            clock.Clock.time = told
        return x * x + x"""
LOCKED = """import ctypes
        nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        nvml.nvmlInit_v2()
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        if nvml.nvmlDeviceSetGpuLockedClocks(device, 300, 300) == 0:
            raise RuntimeError("the clock of the device was set")
        return x * x + x"""
LOOSE = [Judged("output", (Predicate("rel_l2", {"max": 8e-3}),))]


@pytest.mark.parametrize(
    ("body", "code"),
    [(KEPT, "measure-wrong"), (LOCKED, None)],
    ids=["kept", "the device's clock"],
)
def test_times_that_are_not_a_calls(twin, body, code):
    asked = Measurement(twin(body), "Twin.f", LOOSE, device="cuda", processes=1, runs=3)
    if code is None:
        assert measure(asked).sides
        return
    with pytest.raises(Refusal) as caught:
        measure(asked)
    assert caught.value.diags[0].code == code


def test_a_quarter_of_the_time_is_refused_or_not_held(twin):
    """On a busy host the clocks may be too noisy to refuse three hidden quarters: then they say
    so, as three times of what is told must lie in their room."""
    try:
        report = measure(
            Measurement(twin(QUARTER), "Twin.f", LOOSE, device="cuda", processes=1, runs=5)
        )
    except Refusal as refusal:
        assert refusal.diags[0].code in ("measure-clock", "measure-noisy")
    else:
        assert all(clocks["unheld"] >= 2.5 for clocks in report.sides[0].clocks.values())


def test_work_on_a_stream_that_nobody_waits_for_is_refused(twin):
    with pytest.raises(Refusal) as caught:
        measure(Measurement(twin(ASIDE), "Twin.f", EQUAL, device="cuda", processes=1, runs=3))
    assert caught.value.diags[0].code in (
        "measure-clock",
        "measure-implausible",
        "measure-wrong",
        "check-output-unsettled",
    )
