"""doctor: one line a finding, the machine's own values masked."""

import compileall
import json
import re

import pytest

import tilefoundry.targets.cuda.host.doctor as cuda
from tilefoundry.build import machine
from tilefoundry.cli import doctor
from tilefoundry.targets.load import load_target

NAMES = [
    "python",
    "torch",
    "C compiler",
    "processor",
    "vector units",
    "nvcc",
    "NVIDIA driver",
    "fitting targets",
]


def test_lines(command):
    answer = command("doctor", TILEFOUNDRY_HOME="nowhere")
    assert (answer.code, answer.stderr) == (0, "")
    lines = [re.fullmatch(r"(.+?) {2,}(yes|no) +(.+)", s) for s in answer.stdout.splitlines()]
    assert all(lines)
    assert [line[1] for line in lines if not line[1].startswith("target ")] == NAMES
    targets = [line for line in lines if line[1].startswith("target ")]
    assert "target nvidia.h200_sxm" in [line[1] for line in targets]
    assert {(line[2], line[3].split(";")[0]) for line in targets} == {("yes", "shipped")}


def test_json(command):
    answer = command("doctor", "--json", TILEFOUNDRY_HOME="nowhere")
    record = json.loads(answer.stdout)
    assert (record["ok"], record["exit"]) == (True, 0)
    assert [f["name"] for f in record["findings"]][: len(NAMES)] == NAMES
    assert {*record["findings"][0]} == {"name", "there", "found", "serves"}


AVX2 = ("x86_64", "avx", "avx2", "fma", "f16c")
ZEN4 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16")
AVX512 = (*ZEN4, "avx_vnni")
AMX = (*AVX512, "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")
"""Flags as Linux names them in /proc/cpuinfo."""


@pytest.mark.parametrize(
    ("flags", "fits"),
    [(AVX2[:2], "cpu.generic"), (AVX2, "amd.epyc_avx2"), (ZEN4, "amd.epyc_zen4"),
     (AVX512, "amd.epyc_avx512"), (AMX, "intel.xeon_amx")],
)  # fmt: skip
def test_the_target_of_most_instructions_that_runs_here_is_named(monkeypatch, flags, fits):
    monkeypatch.setattr(machine, "features", lambda: frozenset(flags))
    assert f"{fits} (cpu)" in doctor._fitting().found
    told = {f.name: f.found for f in doctor._targets()}
    assert told[f"target {fits}"] == "shipped; its code runs here"
    assert "lacks amx.ld" in told["target apple.m2_pro"]


@pytest.mark.parametrize(
    ("devices", "lacks"),
    [(("90",), ()), (("80", "90"), ()), (("80",), ("a device of compute capability 9.0",)),
     ((), ("a device of compute capability 9.0",))],
)  # fmt: skip
def test_a_device_fits_by_its_compute_capability(monkeypatch, devices, lacks):
    monkeypatch.setattr(cuda, "capabilities", lambda: devices)
    assert cuda.lacks(load_target("nvidia.h200_sxm")) == lacks


def test_absent_compiler_and_torch(command):
    answer = command("doctor", PATH="/nonexistent", CC="no-such-cc", TILEFOUNDRY_HOME="nowhere")
    assert re.search(r"^C compiler +no +none of no-such-cc on PATH", answer.stdout, re.MULTILINE)
    assert answer.code == 0


def test_an_invalid_document_is_found(command, tmp_path):
    folder = tmp_path / "home" / "targets"
    folder.mkdir(parents=True)
    (folder / "mine.broken.toml").write_text("kind = 3\n")
    answer = command("doctor", TILEFOUNDRY_HOME=str(tmp_path / "home"))
    assert re.search(r"^target mine\.broken +no +\[target-", answer.stdout, re.MULTILINE)
    assert answer.code == 4


def test_a_torch_that_python_compiles_in_each_process_is_told(cold, tmp_path):
    folder = tmp_path / "torch"
    (tmp_path / "torch-9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9\n")
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    path = {"PYTHONPATH": str(tmp_path), "TILEFOUNDRY_HOME": "nowhere"}
    (line,) = [x for x in cold("doctor", **path).stdout.splitlines() if x.startswith("torch ")]
    assert "9.9, without bytecode" in line and f"python -m compileall -q {folder}" in line
    compileall.compile_dir(folder, quiet=1)
    (line,) = [x for x in cold("doctor", **path).stdout.splitlines() if x.startswith("torch ")]
    assert "9.9" in line and "bytecode" not in line
