"""Real lowerings are accepted; faults in them are caught."""

import sys
from functools import cache
from pathlib import Path

import pytest

from tilefoundry.lang.load import load_source
from tilefoundry.lower import lower
from tilefoundry.verify import device, judge, machine, verify

sys.path += [str(Path(__file__).parents[1] / "tir"), str(Path(__file__).parents[1] / "programs")]
import sizes
from faults import FAMILY, faults
from samples import gemm


@cache
def kernels(case):
    loaded = load_source(sizes.path(case), None, sizes.EVALUATE[case])
    return tuple(lower(loaded.module, loaded.func or "").kernels.values())


@pytest.mark.parametrize("case", sizes.EVALUATE)
def test_lowerings_are_accepted(case):
    for kernel in kernels(case):
        assert verify(kernel) == ()


@pytest.mark.parametrize(
    "case", ["gemm_ampere", "gemm_rs", "gemm_halves", "flash_attention@d64", "transpose_smem"]
)
def test_faults_in_lowerings_are_caught(case):
    for kernel in kernels(case):
        for fault in faults(kernel):
            families = {f.code for f in verify(fault.func)}
            assert families & set(FAMILY[fault.kind]), f"{fault.kind} at {fault.where}: {families}"


@pytest.mark.parametrize("stages", [1, 2])
def test_a_cut_loop_tells_what_the_whole_loop_tells(stages, monkeypatch):
    # 12 tiles of 13 steps: both loops are longer than what is run of them
    func = gemm(tiles=(12, 1), k_steps=13, ctas=1, stages=stages, groups=1, storer="own")
    made = [func, *(f.func for f in faults(func) if f.kind in KINDS)]
    short = [{f.code for f in verify(f)} for f in made]
    monkeypatch.setattr(machine, "iterations", lambda values, cut, env: values)
    assert short == [{f.code for f in verify(f)} for f in made]


KINDS = ("early-release", "shallow-wait", "drop-wait", "parity")


CPU = Path(__file__).parents[1] / "programs_cpu"
WIDE = {"TARGET": "intel.xeon_amx", "LANES": 16, "CORES": 2}
LARGE = [
    ("chain", {"N": 78643205, "DTYPE": "f32"}),
    ("rmsnorm", {"ROWS": 9728, "COLS": 4096}),
    ("layernorm", {"ROWS": 19200, "COLS": 4096, "VECS": 2}),
    ("layernorm", {"ROWS": 19201, "COLS": 4099, "VECS": 2}),
    ("layernorm_flow", {"ROWS": 19201, "COLS": 4096}),
    ("layernorm_rows", {"ROWS": 153600, "COLS": 512}),
    ("softmax", {"ROWS": 19200, "COLS": 4096, "DTYPE": "f32"}),
    ("softmax", {"ROWS": 19201, "COLS": 4099}),
]


def judged(name, consts, change=("", "")):
    text = (CPU / f"{name}.py").read_text(encoding="utf-8")
    assert change[0] in text
    changed = text.replace(*change) if change[0] else text
    loaded = load_source(str(CPU / f"{name}.py"), None, consts, changed)
    (kernel,) = lower(loaded.module, loaded.func or "").kernels.values()
    return judge(kernel)


@pytest.mark.parametrize(("name", "consts"), LARGE, ids=str)
def test_programs_of_many_rows_are_decided_without_a_look_at_each(name, consts, monkeypatch):
    def looked(*_):
        raise AssertionError("windows are looked at one by one")

    monkeypatch.setattr(device, "windows_of", looked)
    found = judged(name, {**WIDE, **consts})
    assert (tuple(found), found.notes) == ((), ())


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("layernorm", ("max(step - 1, 0)", "max(step - 2, 0)"), "device-unwritten"),
        ("layernorm", ("core * PART + max", "core * (PART - R) + max"), "device-overlap"),
        ("layernorm", ("-TURN))", "CHUNK - TURN))"), "device-unwritten"),
        ("softmax", ("max(step - 2, 0)", "min(step, STEPS - 2)"), "device-unwritten"),
        ("softmax", ("first + max(step - 2", "max(step - 2"), "device-overlap"),
        ("rmsnorm", ("max(step - 1, 0)", "max(step - 1, R)"), "device-unwritten"),
    ],
    ids=str,
)
def test_rows_that_are_missed_or_met_by_another_core_are_found(name, change, code):
    found = judged(name, {"ROWS": 40, "COLS": 64, "DTYPE": "f32", "LANES": 8}, change)
    assert code in {f.code for f in found}
    if code == "device-unwritten" and "step" in change[0]:  # of many rows, too
        # what is stored beyond the last column is more than what is missed
        found = judged(name, {**WIDE, "ROWS": 19201, "COLS": 4099, "DTYPE": "f32"}, change)
        assert code in {f.code for f in found}
