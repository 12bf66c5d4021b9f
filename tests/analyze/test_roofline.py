"""Time lower bounds and waves, from the target's figures by hand."""

import json
from fractions import Fraction

import pytest

from tilefoundry.analyze.roofline import roofline


def bounds(case, **dims):
    return {b.resource: b for b in roofline(case.priced(**dims)).bounds}


def test_chain_is_bound_by_memory(case):
    # 16 MiB read and 16 MiB written at 4.8 TB/s: 33554432 / 4.8e12 = 6.99 us
    found = roofline(case("chain_two_cuts").priced())
    assert found.limit.resource == "gmem"
    assert float(found.limit.time) == pytest.approx(33554432 / 4.8e12)
    assert found.intensity == Fraction(25165824, 33554432)


def test_unfused_chain_has_the_same_bound(case):
    """The bound counts what no cache can avoid: x in, the result out."""
    assert bounds(case("chain_plain"))["gmem"].time == bounds(case("chain_two_cuts"))["gmem"].time


def test_gemm_is_bound_by_the_matrix_units(case):
    # The busiest of 132 processors does 33 of 4352 / 132 = 32.97 tiles:
    # 33 * 335544320 flop at 989.5e12 / 132 flop/s = 1.477 ms
    for name in ("gemm_grid", "gemm_optimal"):
        found = roofline(case(name).priced())
        assert found.limit.resource == "matrix.bf16"
        assert float(found.limit.time) == pytest.approx(33 * 335544320 * 132 / 9.895e14)


def test_narrow_types_have_their_own_rate(program):
    """fp8 products run at 1979e12, twice the rate of bf16; f32 ones on the vector units."""
    body = """
    @func
    def f(a: Tensor[(1024, 1024), "{dtype}"], b: Tensor[(1024, 1024), "{dtype}"]):
        return tf.matmul(a, b, out_dtype="f32")
    """
    flop = 2 * 1024**3
    rates = {"bf16": 9.895e14, "fp8e4m3": 1.979e15, "f32": 6.7e13}
    for dtype, rate in rates.items():
        found = bounds(program(body.format(dtype=dtype)))
        assert float(found[f"matrix.{dtype}"].time) == pytest.approx(flop / rate)


def test_special_functions_are_not_one_flop(program):
    # 16 per clock and SM: 132 * 16 * 1.98e9 = 4.18e12 per second
    body = """
    @func
    def f(x: Tensor[(1024, 1024), "f32"]):
        return tf.exp(x)
    """
    found = bounds(program(body))["special.f32"]
    assert float(found.time) == pytest.approx(1024 * 1024 / (132 * 16 * 1.98e9))


def test_unknown_rates_leave_the_bound_valid(case):
    found = roofline(case("chain_two_cuts").priced())
    stuck = [b for b in found.bounds if b.time is None]
    assert "l2" in {b.resource for b in stuck}
    assert all(b.reason for b in stuck)
    assert found.limit is not None


def test_half_of_the_processors(program):
    """66 of 132 processors work: products take twice as long."""
    body = """
    @func
    def f(a: Tensor[(6600, 64), "bf16"], b: Tensor[(64, 64), "bf16"]):
        with Mesh(("cta",), layout=({units},), names=("c",)) as cta:
            x = tf.reshard(a, (6600 @ cta.c, 64), "smem")
            y = tf.reshard(b, storage="smem")
            z = tf.matmul(x, y, out_dtype="f32")
            return tf.reshard(z, (6600 @ cta.c, 64), "gmem")
    """
    whole = 2 * 6600 * 64 * 64 / 9.895e14
    for units, part in ((66, 2), (132, 1), (264, 1)):
        found = bounds(program(body.format(units=units), cta=units))
        assert float(found["matrix.bf16"].time) == pytest.approx(part * whole)


def waves(case):
    held = case.priced().occupancy
    return held.waves.value, held.waves.precision, held.resident.value, held.limit, held.tail


def test_waves_of_the_grid(case):
    # 256 KiB of accumulators fill an SM's registers: one CTA each; 4352 = 32 * 132 + 128
    assert waves(case("gemm_grid")) == (33, "exact", 1, "rmem", 128)


def test_one_persistent_wave(case):
    # 209 KiB with the reserved one: one CTA in 228 KiB
    assert waves(case("gemm_optimal")) == (1, "exact", 1, "smem", 132)


def test_waves_of_the_chain(case):
    # 192 KiB of registers as authored: one CTA an SM, 2 waves; in place 128 KiB: two, 1 wave
    assert waves(case("chain_two_cuts")) == (2, "upper_bound", 1, "rmem", 124)


@pytest.mark.parametrize("threads, resident, limit", [(1024, 2, "thread"), (96, 21, "thread")])
def test_threads_limit_residency(program, threads, resident, limit):
    # 2048 threads an SM: two CTAs of 1024; 21 of 96 (the 64 warps would also take 21)
    body = f"""
    @func
    def f(x: Tensor[(400, {threads}), "f32"]):
        with Mesh(("cta",), layout=(400,), names=("c",)) as cta:
            with Mesh(("thread",), layout=({threads},), names=("t",)) as thread:
                v = tf.reshard(x, (400 @ cta.c, {threads} @ thread.t), "rmem")
                return tf.reshard(v, (400 @ cta.c, {threads} @ thread.t), "gmem")
    """
    found = waves(program(body, cta=400, thread=threads))
    assert found[2:4] == (resident, limit)
    assert found[0] == -(-400 // (132 * resident))


def test_a_machine_that_states_nothing(program):
    body = """
    @func
    def f(x: Tensor[(64,), "f32"]):
        return x + x
    """
    made = program(body, target='CpuTarget("cpu.generic")')
    report = made.report("roofline")
    assert report.exit == 3
    assert any("unavailable" in why for why in report.undecided)
    assert made.report("compute-cost").exit == 0


@pytest.mark.parametrize(
    "target, run",
    [
        ("cpu.generic", "tilefoundry target probe --write my.box"),
        ("intel.xeon_amx", "tilefoundry target probe --write my.box"),
        ("apple.m2_pro", "tilefoundry target add FILE"),
        ("nvidia.h200_sxm", None),
    ],
)
def test_a_target_without_rates_says_what_makes_one(command, tmp_path, target, run):
    path = tmp_path / "product.py"
    path.write_text(
        "from tilefoundry.dsl import *\n"
        "from tilefoundry.target import AnyTarget\n"
        f'@module(entry="f", target=AnyTarget("{target}"))\n'
        "class A:\n"
        "    @func\n"
        '    def f(x: Tensor[(64, 64), "f32"]):\n'
        "        return x * x\n"
    )
    answer = command("analyze", str(path), "--roofline", "--json")
    lines = json.loads(answer.stdout)["head"]
    hints = [line["run"] for line in lines if line["family"] == "hint"]
    assert hints == ([run] if run else [])


def test_bounds_that_are_open_may_be_the_limit(command, tmp_path):
    """The EPYC's document has a rate of f32 and none of its memory."""
    path = tmp_path / "square.py"
    path.write_text(
        "from tilefoundry.dsl import *\n"
        "from tilefoundry.target import AnyTarget\n"
        '@module(entry="f", target=AnyTarget("amd.epyc_avx512"))\n'
        "class A:\n"
        "    @func\n"
        '    def f(x: Tensor[(64, 64), "f32"]):\n'
        "        return x * x\n"
    )
    answer = command("analyze", str(path), "--roofline")
    (line,) = [x for x in answer.stdout.splitlines() if x.startswith("# roofline")]
    assert line.startswith("# roofline limit=float.f32 ") and line.endswith(" undecided=gmem")
