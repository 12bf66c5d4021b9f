"""The physical floor of a made-up machine: 4 cores, 10 GB/s, 100 GFLOP/s, caches of 1 MB."""

import pytest

from tilefoundry.diag import Refusal
from tilefoundry.judge.measure.floor import Floor, Work, floor
from tilefoundry.targets.document import read_document
from tilefoundry.targets.load import architecture_of, family_of
from tilefoundry.targets.target import Target

DOCUMENT = """
[spec]
schema = "tilefoundry.cpu.device/v3"
kind = "device"
id = "made.up"
name = "Four cores"

[compatibility]
architectures = ["x86_64.avx2"]

[storages]
gmem = "dram"

[facts]
processors.count = { value = 4, unit = "processor", origin = "vendor", source = "here" }
clock.boost = { value = 1e9, unit = "Hz", origin = "vendor", source = "here" }
memory.dram.capacity.unavailable = "any"
memory.l3.capacity = { value = 600_000, unit = "byte", origin = "vendor", source = "here" }
memory.l2.capacity = { value = 90_000, unit = "byte", origin = "vendor", source = "here" }
memory.l1.capacity = { value = 10_000, unit = "byte", origin = "vendor", source = "here" }

[facts.memory.dram.bandwidth]
value = 9e9
unit = "byte/s"
origin = "measured"
source = "here"
conditions = "idle"
low = 8e9
high = 1e10

[facts.peak.vector.f32]
value = 1e11
unit = "flop/s"
origin = "vendor"
source = "here"
"""


@pytest.fixture(scope="module")
def target():
    return Target(read_document(DOCUMENT, "up.toml", family_of, architecture_of))


def work(read, written, flops=0):
    return Work(read, written, {("float", "f32"): flops} if flops else {})


@pytest.mark.parametrize(
    ("it", "threads", "cold", "seconds", "resource"),
    [
        (work(2_000_000, 5_000_000), 1, True, 2e-4, "dram"),  # what is read, at most 10 GB/s
        # 600 kB + 1 x 100 kB stay in the caches of one core
        (work(2_000_000, 700_000), 1, False, 2e-4, "dram"),
        (work(2_000_000, 700_000), 4, False, 1.7e-4, "dram"),  # 600 kB + 4 x 100 kB
        (work(500_000, 100_000), 1, False, 0.0, None),  # all in caches
        (work(1000, 1000, 1_000_000), 1, True, 4e-5, "float.f32"),  # a quarter of 100 GFLOP/s
        (work(1000, 1000, 1_000_000), 2, True, 2e-5, "float.f32"),
    ],
)
def test_the_floor(target, it, threads, cold, seconds, resource):
    found = floor(it, target, threads, cold)
    assert found.time == pytest.approx(seconds)
    assert not found.lacks
    assert (found.bounds[0].resource if found.bounds else None) == resource


def test_what_is_not_known_is_named(target):
    unknown = Work(None, None, {("matrix", "bf16"): 8})
    found = floor(unknown, target, 1, True)
    assert found.time == 0
    assert found.lacks == ("a rate of matrix.bf16", "the bytes that are read and written")
    assert floor(Work(None, None, {}, "no target"), target, 1, True).lacks == ("no target",)


def test_a_time_below_the_floor_is_refused(target):
    found = floor(work(2_000_000, 0), target, 1, True)
    found.hold("the candidate", "cold", 1.81e-4)  # 0.9 of 200 us
    with pytest.raises(Refusal) as caught:
        found.hold("the candidate", "cold", 1.79e-4)
    (diag,) = caught.value.diags
    assert diag.code == "measure-implausible"
    assert "179.000 us" in diag.says and "200.000 us" in diag.expected
    Floor((), ("nothing is known",)).hold("the candidate", "cold", 1e-12)
