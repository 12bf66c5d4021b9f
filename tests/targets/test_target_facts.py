"""The shipped figures, against values typed from the hardware's description by hand."""

import pytest

from tilefoundry.targets import load_architecture, load_target
from tilefoundry.targets.load import documents, load_document

KIB, MIB = 1024, 1024 * 1024

SM90 = {
    "units.thread.per.cta": 1024,
    "group.warp.size": 32,
    "resident.thread": 2048,
    "resident.warp": 64,
    "resident.cta": 32,
    "units.cta.per.cluster": 8,
    "units.cta.per.cluster_opt_in": 16,
    "registers.count": 65536,
    "registers.width": 4,
    "registers.per_unit": 255,
    "registers.granule": 256,
    "memory.register.capacity": 256 * KIB,
    "memory.register.unit_limit": 1020,
    "memory.shared.processor_capacity": 228 * KIB,
    "memory.shared.capacity": 232448,
    "memory.shared.reserved": 1 * KIB,
    "memory.shared.banks": 32,
    "memory.shared.bank_width": 4,
    "memory.shared.rate": 128,
    "memory.l2.sector": 32,
    "memory.l1.capacity": 256 * KIB,
    "rate.fma.f32": 128,
    "rate.integer": 64,
    "rate.compare": 64,
    "rate.select": 64,
    "rate.special": 16,
    "rate.matrix.bf16": 4096,
    "rate.matrix.f16": 4096,
    "rate.matrix.fp8e4m3": 8192,
    "rate.matrix.fp8e5m2": 8192,
    "limits.named_barriers": 16,
    "limits.mbarrier.width": 8,
    "limits.mbarrier.pending": 1048575,
    "limits.mbarrier.transaction": 1048575,
    "limits.tensor_copy.rank": 5,
    "limits.tensor_copy.box": 256,
    "limits.tensor_copy.stride_multiple": 16,
    "limits.tensor_copy.stride_end": 1099511627776,
    "limits.tensor_copy.global_alignment": 16,
    "limits.tensor_copy.shared_alignment": 128,
    "limits.tensor_copy.swizzle_128_alignment": 1024,
    "limits.tensor_copy.inner_box.swizzle_128": 128,
    "limits.wgmma.m": 64,
    "limits.wgmma.k": 32,
    "limits.wgmma.n_multiple": 8,
    "limits.wgmma.n_max": 256,
    "limits.setmaxnreg.min": 24,
    "limits.setmaxnreg.max": 256,
    "limits.setmaxnreg.step": 8,
}

H200 = {
    "processors.count": 132,
    "clock.boost": 1980e6,
    "clock.matrix": 1830e6,
    "power.limit": 700,
    "memory.hbm.capacity": 141e9,
    "memory.hbm.bandwidth": 4.8e12,
    "memory.hbm.copy_bandwidth": 4.30e12,
    "memory.l2.capacity": 50 * MIB,
    "memory.l2.reported": 62914560,
    "peak.matrix.bf16": 989.5e12,
    "peak.matrix.f16": 989.5e12,
    "peak.matrix.fp8e4m3": 1979e12,
    "peak.matrix.fp8e5m2": 1979e12,
    "peak.matrix.tf32": 494.7e12,
    "peak.vector.f32": 67e12,
    "link.gpu.bandwidth": 900e9,
    "latency.launch": 1.3e-6,
}

H200_UNKNOWN = (
    "memory.l2.bandwidth",
    "memory.shared.matrix_bandwidth",
    "memory.shared.tensor_copy_bandwidth",
    "latency.wgmma",
    "latency.tensor_copy",
    "latency.mbarrier",
    "rate.shuffle",
    "clock.sustained",
)

OTHERS = {
    "amd.epyc_avx2": {
        "processors.count": 2,
        "registers.count": 16,
        "registers.width": 32,
        "rate.fma.f32": 16,  # two units of eight lanes
        "rate.fma.f64": 8,
        "memory.l1.capacity": 32 * KIB,
        "memory.l2.capacity": 512 * KIB,
        "memory.l3.capacity": 32 * MIB,
    },
    "amd.epyc_zen4": {
        "processors.count": 2,
        "registers.count": 32,
        "registers.width": 64,
        "rate.fma.f32": 16,  # sixteen lanes, by two units of half as many
        "rate.fma.f64": 8,
        "rate.matrix.bf16": 64,  # sixteen lanes, two products and two sums each
        "rate.matrix.i8": 128,
        "memory.l1.capacity": 32 * KIB,
        "memory.l2.capacity": 1 * MIB,
        "memory.l3.capacity": 32 * MIB,
    },
    "intel.xeon_amx": {
        "processors.count": 16,
        "tile.count": 8,
        "tile.rows": 16,
        "tile.row_width": 64,
        "memory.tile.capacity": 8192,
        "rate.matrix.bf16": 1024,  # 16384 flop in 16 clocks
        "achieved.matrix.bf16.threads_1": 0.5e12,
    },
    "apple.m2_pro": {
        "processors.performance": 8,
        "processors.efficiency": 4,
        "memory.l1.capacity": 128 * KIB,
        "memory.l1_efficiency.capacity": 64 * KIB,
        "memory.l2.capacity": 16 * MIB,
        "memory.l2_efficiency.capacity": 4 * MIB,
        "memory.l1.line": 128,
        "memory.dram.bandwidth": 200e9,
        "memory.x.capacity": 512,
        "memory.y.capacity": 512,
        "memory.z.capacity": 4096,
        "limits.move": 64,
        "limits.pair_alignment": 128,
        "limits.outer_product.f16": 32,
        "amx.count": 2,
        "amx.peak.f32": 504.9e9,
    },
}

SHIPPED = [found.id for found in documents() if found.place == "shipped"]


def test_what_is_shipped():
    assert SHIPPED == [
        "amd.epyc_avx2",
        "amd.epyc_avx512",
        "amd.epyc_zen4",
        "amd.zen4",
        "apple.amx2",
        "apple.m2_pro",
        "cpu.generic",
        "cpu.plain",
        "intel.xeon_amx",
        "nvidia.h200_sxm",
        "nvidia.sm90",
        "x86_64.amx",
        "x86_64.avx2",
        "x86_64.avx512",
        "x86_64.generic",
    ]


@pytest.mark.parametrize("id", SHIPPED)
def test_every_shipped_fact_says_where_it_comes_from(id):
    document = load_document(id)
    assert document.id == id
    assert document.facts
    for fact in document.facts.values():
        if fact.known:
            assert fact.unit and fact.source and not fact.unavailable
            assert fact.explanation or fact.origin not in ("derived", "estimated")
            assert fact.conditions or fact.origin != "measured"
        else:
            assert fact.unavailable and not fact.origin


@pytest.mark.parametrize(("path", "value"), SM90.items())
def test_sm90(path, value):
    assert load_architecture("nvidia.sm90").facts[path].value == value


@pytest.mark.parametrize(("path", "value"), H200.items())
def test_h200(path, value):
    assert load_target("nvidia.h200_sxm").fact(path).value == value


@pytest.mark.parametrize("path", H200_UNKNOWN)
def test_what_nobody_published_stays_unknown(path):
    fact = load_target("nvidia.h200_sxm").fact(path)
    assert not fact.known and fact.value is None
    assert fact.unavailable


@pytest.mark.parametrize(
    ("id", "path", "value"), [(i, p, v) for i, facts in OTHERS.items() for p, v in facts.items()]
)
def test_other_machines(id, path, value):
    assert load_target(id).fact(path).value == value


def test_capabilities():
    known = set(load_target("nvidia.h200_sxm").capabilities)
    assert known >= {
        "mma.sync",
        "wgmma.mma_async",
        "ldmatrix",
        "stmatrix",
        "cp.async",
        "cp.async.bulk",
        "cp.async.bulk.tensor",
        "mbarrier",
        "setmaxnreg",
        "cluster",
    }
    assert "amx_bf16" in load_target("intel.xeon_amx").capabilities
    assert "avx512f" not in load_target("amd.epyc_avx2").capabilities
    zen4, zen5 = (load_target(f"amd.epyc_{n}").capabilities for n in ("zen4", "avx512"))
    assert {*zen5} - {*zen4} == {"avx_vnni"} and {*zen4} < {*zen5}


def test_the_derived_matrix_rate_follows_from_the_peak():
    # 989.5e12 flop/s over 132 SMs at 1.83 GHz
    assert pytest.approx(4096, rel=2e-4) == 989.5e12 / (132 * 1.83e9)
    sm90 = load_architecture("nvidia.sm90")
    assert sm90.facts["rate.matrix.bf16"].origin == "derived"
    assert "132" in sm90.facts["rate.matrix.bf16"].explanation


def test_measured_products_have_their_spread():
    target = load_target("nvidia.h200_sxm")
    fact = target.fact("achieved.matrix.bf16.m8192_n17408_k5120")
    assert (fact.low, fact.high) == (660e12, 700e12)
    fact = target.fact("achieved.matrix.bf16.m8192_n8192_k8192")
    assert (fact.low, fact.high) == (769e12, 798e12)
