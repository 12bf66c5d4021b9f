"""What analyses ask of a target, answered without naming a vendor."""

import pytest

from tilefoundry.targets import load_target
from tilefoundry.targets.target import RegisterFile


@pytest.fixture
def h200():
    return load_target("nvidia.h200_sxm")


def test_levels_are_outermost_first(h200):
    assert h200.levels == ("gpu", "cluster", "cta", "thread")
    assert h200.optional_levels == ("cluster",)
    assert load_target("apple.m2_pro").levels == ("core", "amx")
    assert load_target("cpu.generic").levels == ("core", "lane")


def test_storages_are_farthest_first(h200):
    assert list(h200.storages) == ["gmem", "smem", "rmem"]
    assert h200.default_storage == "gmem"
    gmem, smem, rmem = h200.storages.values()
    assert (gmem.level, gmem.pool) == (None, None)
    assert (smem.level, smem.pool) == ("cta", "cta")
    assert (rmem.level, rmem.pool) == ("thread", "cta")
    assert gmem.capacity.value == 141_000_000_000
    assert smem.capacity.value == 227 * 1024
    assert smem.processor_capacity.value == 228 * 1024
    assert smem.reserved.value == 1024
    assert rmem.capacity.value == 65536 * 4
    assert rmem.unit_limit.value == 255 * 4


def test_caches(h200):
    assert {name: cache.scope for name, cache in h200.caches.items()} == {
        "l2": "device",
        "l1": "processor",
    }
    assert load_target("apple.m2_pro").caches["l2"].scope == "group"


def test_processor_and_residency(h200):
    assert (h200.processor.name, h200.processor.level) == ("SM", "cta")
    assert h200.processor.count.value == 132
    assert {n: f.value for n, f in h200.resident.items()} == {
        "cta": 32,
        "thread": 2048,
        "warp": 64,
    }
    assert {n: f.value for n, f in h200.groups.items()} == {"warp": 32, "warpgroup": 128}


def test_registers(h200):
    """CUDA C++ Programming Guide, compute capability 9.0; PTX ISA, setmaxnreg."""
    assert h200.registers == RegisterFile(65536, 255, 8, 128, 24)
    assert [h200.registers.even(n) for n in (128, 256, 384, 512, 1024)] == [255, 255, 168, 128, 64]
    assert load_target("cpu.generic").registers is None


def test_max_units(h200):
    assert h200.max_units("thread").value == 1024
    assert h200.max_units("cta").value == 2147483647
    assert h200.max_units("cta", per="cluster").value == 8
    assert not h200.max_units("gpu").known
    assert h200.max_units("cluster") is None
    # A core is a processor: there are as many units as cores.
    assert load_target("amd.epyc_avx2").max_units("core").value == 2
    assert load_target("amd.epyc_avx2").max_units("lane").value == 32


def test_waves_and_occupancy_from_the_api_alone(h200):
    """64 x 68 CTAs of 384 threads, 208 KiB of smem: one CTA per SM, 33 waves."""
    smem = h200.storages["smem"]
    by_threads = h200.resident["thread"].value // 384
    by_smem = smem.processor_capacity.value // (208 * 1024 + smem.reserved.value)
    resident = min(by_threads, by_smem, h200.resident["cta"].value)
    assert resident == 1
    assert -(-64 * 68 // (resident * h200.processor.count.value)) == 33


def test_rates_are_per_dtype(h200):
    assert h200.flops_rate("matrix", "bf16").value == 989.5e12
    assert h200.flops_rate("matrix", "fp8e4m3").value == 1979e12
    assert h200.flops_rate("matrix", "tf32").value == 494.7e12
    assert h200.flops_rate("vector", "f32").value == 67e12
    # No document states these: no other dtype's rate stands in.
    assert h200.flops_rate("matrix", "f4e2m1") is None
    assert h200.flops_rate("vector", "f64") is None
    # packed pairs: 256 fused multiply-adds per clock and SM, at the seen boost clock
    assert h200.flops_rate("vector", "f16").value == 256 * 132 * 2 * 1_980_000_000


def test_rates_derived_from_clock_and_count(h200):
    special = h200.op_rate("special")
    assert special.value == 16 * 132 * 1_980_000_000
    assert special.unit == "op/s" and special.origin == "derived"
    assert "132 processors" in special.explanation
    assert h200.op_rate("integer").value == 64 * 132 * 1_980_000_000
    assert not h200.op_rate("shuffle").known
    assert h200.op_rate("convert") is None
    # Two cores, 16 fused multiply-adds per clock, base clock: nobody states the boost clock.
    epyc = load_target("amd.epyc_avx2").flops_rate("vector", "f32")
    assert epyc.value == 2 * 16 * 2 * 2_445_000_000
    assert "clock.base" in epyc.explanation


def test_bandwidths(h200):
    assert h200.bandwidth("gmem").value == 4.8e12
    assert h200.copy_bandwidth("gmem").value == 4.3e12
    assert h200.bandwidth("smem").value == 128 * 132 * 1_980_000_000
    assert not h200.bandwidth("l2").known
    assert h200.bandwidth("rmem") is None


def test_what_depends_on_an_unknown_is_unknown_and_says_why():
    plain = load_target("cpu.generic")
    assert not plain.max_units("core").known
    assert not plain.storages["rmem"].capacity.known
    rate = plain.flops_rate("vector", "f32")
    assert not rate.known
    assert rate.unavailable == "rate.fma.f32 is unavailable: depends on the machine"
    assert not load_target("intel.xeon_amx").flops_rate("matrix", "bf16").known


def test_facts_are_in_order_of_path(h200):
    paths = [fact.path for fact in h200.facts()]
    assert paths == sorted(paths)
    assert "memory.hbm.bandwidth" in paths and "rate.fma.f32" in paths
