"""The sample GEMM: right under every schedule, and each fault in it is named."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tilefoundry.interpret import POLICIES, run
from tilefoundry.tir.program import Issue, Sync
from tilefoundry.tir.rewrite import mapped, rebuild

sys.path.append(str(Path(__file__).parents[1] / "tir"))
from samples import gemm


@cache
def product(m=256, k=256, n=256):
    """Operands, their float64 product, and by how much a right result may differ from it:
    half a bf16 step of the value, and what 256 float32 additions lose."""
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(m, k, generator=generator).bfloat16()
    b = torch.randn(k, n, generator=generator).bfloat16()
    exact = a.double() @ b.double()
    lost = k * 2.0**-24 * (a.double().abs() @ b.double().abs())
    return a, b, exact, exact.abs() * 2.0**-8 + lost


@cache
def sample(**options):
    """Two tiles for each CTA; ``groups`` of consumers, tiles of 64 rows for each."""
    return gemm(**{"tiles": (2, 1), "k_steps": 4, "ctas": 1, "groups": 1, **options})


def right(output, m):
    _, _, exact, bound = product(m)
    return bool(((output.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("storer", ["loader", "own"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_product_is_right_under_every_schedule(policy, storer):
    a, b, *_ = product(512)
    for seed in range(2):
        func = sample(tiles=(4, 1), ctas=2, groups=2, storer=storer)
        found = run(func, [a, b], policy=policy, seed=seed)
        assert [str(r) for r in found.reports] == []
        assert right(found.outputs[0], 512)


@pytest.mark.parametrize("k_steps", [1, 2, 3, 5])
def test_trip_counts_around_the_ring_depth(k_steps):
    k = 64 * k_steps
    a, b, exact, bound = product(128, k, 256)
    func = sample(k_steps=k_steps)
    for policy in ("random", "lagging-engines"):
        found = run(func, [a, b], policy=policy)
        assert found.reports == []
        assert bool(((found.outputs[0].double() - exact).abs() <= bound).all())


def of(kind, barrier=None, **fields):
    """Whether a statement is such a synchronisation."""

    def test(stmt):
        return (
            isinstance(stmt, Sync)
            and stmt.kind == kind
            and (barrier is None or (stmt.barrier is not None and stmt.barrier.name == barrier))
            and all(getattr(stmt, k) == v for k, v in fields.items())
        )

    return test


def without(test):
    return lambda stmt: () if test(stmt) else (stmt,)


def changed(test, **change):
    def apply(stmt):
        new = {k: v(stmt) if callable(v) else v for k, v in change.items()}
        return (replace(stmt, **new),) if test(stmt) else (stmt,)

    return lambda stmt: apply(stmt) if isinstance(stmt, Sync) else (stmt,)


def flipped(stmt):
    return (stmt.parity + 1) % 2


RACES = {"race", "overwritten-slot"}
# name: (rewrite, kinds of which one must be reported under every schedule)
FAULTS = {
    "no wait for filled": (
        without(of("wait", "full")), {*RACES, "uninitialised", "register-hazard"},
    ),
    "no wait for emptied": (without(of("wait", "empty")), RACES),
    "no wait for staged": (without(of("wait", "staged_full")), {*RACES, "uninitialised"}),
    "no wait for stored": (without(of("wait", "staged_empty")), {"overwritten-slot"}),
    "no release": (without(of("arrive", "empty")), {"deadlock"}),
    "no arrive of staged": (without(of("arrive", "staged_full")), {"deadlock"}),
    "no arrive of stored": (without(of("arrive", "staged_empty")), {"deadlock"}),
    "no proxy fence": (without(of("fence_proxy")), RACES),
    "no warp barrier": (without(of("warp")), RACES),
    "bytes of one copy": (changed(of("expect"), bytes=16384), {"bytes-mismatch"}),
    "bytes too many": (changed(of("expect"), bytes=lambda s: s.bytes + 16), {"bytes-mismatch"}),
    "bytes too few": (changed(of("expect"), bytes=lambda s: s.bytes - 16), {"bytes-mismatch"}),
    "no expect": (without(of("expect")), {"bytes-mismatch", "deadlock"}),
    "parity of full": (
        changed(of("wait", "full"), parity=flipped), {*RACES, "deadlock", "barrier-misuse"},
    ),
    "parity of empty": (
        changed(of("wait", "empty"), parity=flipped), {*RACES, "deadlock", "barrier-misuse"},
    ),
    "no wait for the read": (without(of("bulk_wait", read=True)), {"overwritten-slot"}),
    "no wait at the end": (without(of("bulk_wait", read=False)), {"not-drained"}),
    "no bulk commit": (without(of("bulk_commit")), {"not-drained"}),
    "waits one deeper": (
        changed(of("wgmma_wait"), pending=lambda s: s.pending + 1), {*RACES, "register-hazard"},
    ),
    "loop waits one deeper": (changed(of("wgmma_wait", pending=1), pending=2), RACES),
    "no wait for the accumulator": (
        without(of("wgmma_wait", pending=0)), {"register-hazard", *RACES},
    ),
    "no register fence": (without(of("wgmma_fence")), {"register-hazard"}),
    "no wgmma commit": (without(of("wgmma_commit")), {"register-hazard", *RACES}),
    "no init fence": (without(of("fence_init")), {"barrier-misuse"}),
    "no init": (without(of("init")), {"barrier-misuse"}),
    "no block barrier": (without(of("barrier")), {"barrier-misuse"}),
    "barrier leaves out a warp": (
        changed(of("barrier"), threads=224), {"barrier-misuse", "deadlock"},
    ),
    "barrier counts a warp more": (changed(of("barrier"), threads=288), {"deadlock"}),
    "arrives twice": (
        lambda s: (s, s) if of("arrive", "staged_full")(s) else (s,),
        {*RACES, "uninitialised", "barrier-misuse"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("policy", ["lagging-engines", "reverse"])
def test_each_fault_is_named(name, policy):
    rewrite, expected = FAULTS[name]
    func = sample(storer="own")
    func = replace(func, body=mapped(func.body, rewrite))
    a, b, *_ = product(128)
    found = run(func, [a, b], policy=policy)
    assert {r.kind for r in found.reports} & expected, [str(r) for r in found.reports]


def overlapping_slots(func):
    lhs = func.buffers[0]
    return rebuild(func, {lhs: replace(lhs, offsets=(*lhs.offsets[:2], lhs.offsets[1]))})


def staging_over_ring(func):
    _, rhs, staged, *_ = func.buffers
    return rebuild(func, {staged: replace(staged, offsets=(rhs.offsets[0],))})


def fewer_slots(func):
    """Views use two slots of the ring, barriers still three."""

    def change(stmt):
        if not isinstance(stmt, Issue):
            return (stmt,)
        reads = tuple(smaller(v) for v in stmt.reads)
        return (replace(stmt, reads=reads, writes=tuple(smaller(v) for v in stmt.writes)),)

    def smaller(view):
        slots = getattr(getattr(view, "buffer", None), "slots", 1)
        return replace(view, slot=view.slot % 2) if slots > 1 else view

    return replace(func, body=mapped(func.body, change))


def barriers_over_staging(func):
    staged = func.buffers[2]
    full = func.barriers[0]
    return rebuild(func, barriers={full: replace(full, offset=staged.offsets[0])})


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (overlapping_slots, RACES),
        (staging_over_ring, RACES),
        (fewer_slots, RACES),
        (barriers_over_staging, {"overlap"}),
    ],
)
@pytest.mark.parametrize("policy", ["random", "eager-engines"])
def test_storage_faults_are_named(fault, expected, policy):
    a, b, *_ = product(128)
    found = run(fault(sample(storer="own")), [a, b], policy=policy)
    assert {r.kind for r in found.reports} & expected, [str(r) for r in found.reports]


def test_a_report_says_what_is_missing():
    func = sample(storer="own")
    func = replace(func, body=mapped(func.body, without(of("wait", "staged_empty"))))
    a, b, *_ = product(128)
    (report,) = run(func, [a, b]).reports
    assert report.kind == "overwritten-slot"
    assert report.buffer == "staged"
    assert "read of staged by the engine for thread 32" in report.says
    assert "bulk_wait by its issuer, and an arrive" in report.missing
    assert report.first.stmt.instr == "copy_async_tensor"
    assert report.second.stmt.instr == "copy"
