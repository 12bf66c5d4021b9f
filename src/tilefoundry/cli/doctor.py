"""What this machine can do: interpreter, torch, compilers, processor, targets."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import json_option
from tilefoundry.diag import Refusal

FEATURES = ("avx", "f16c", "fma", "avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "neon")
PROBE_SECONDS = 120
PROBE = """
import torch
names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(torch.__version__, *(names or ["no device"]), sep="; ")
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: whether it is there, what was found, what it is for."""

    name: str
    there: bool
    found: str
    serves: str


@click.command(
    "doctor",
    epilog=epilog(
        ("tilefoundry doctor", "tilefoundry doctor --torch", "tilefoundry doctor --json"),
        {4: "a target document is not valid"},
    ),
)
@click.option("--torch", "probe", is_flag=True, help="Also start torch and ask for its devices.")
@json_option
def command(probe: bool, as_json: bool) -> int:
    """What this machine can do.

    Each line says whether a thing is there, what was found and what needs it. Only
    --torch imports torch, in a process of its own.
    """
    findings = [_python(), _torch(), *([_devices()] if probe else []), _c_compiler(), _nvcc()]
    findings += [_driver(), Finding("processor", True, processor(), ""), _features()]
    targets = _targets()
    exit = 0 if all(finding.there for finding in targets) else 4
    findings += targets
    names = max(len(finding.name) for finding in findings)
    lines = [
        f"{finding.name:<{names}}  {'yes' if finding.there else 'no ':<3}  {finding.found}"
        + (f"  ({finding.serves})" if finding.serves else "")
        for finding in findings
    ]
    record = {"findings": findings}
    emit(record, "\n".join(lines), as_json, exit=exit)
    return exit


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", True, f"{version} {sys.executable}", "every command")


def _torch() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    serves = "check, and evaluation"
    try:
        return Finding("torch", True, version("torch"), serves)
    except PackageNotFoundError:
        return Finding("torch", False, "pip install 'tilefoundry[torch]'", serves)


def _devices() -> Finding:
    serves = "check --device cuda"
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Finding("torch devices", False, f"no answer in {PROBE_SECONDS}s", serves)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return Finding("torch devices", False, last, serves)
    found = done.stdout.strip()
    return Finding("torch devices", not found.endswith("no device"), found, serves)


def _c_compiler() -> Finding:
    wanted = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return _program("C compiler", wanted, "twins and kernels in C")


def _nvcc() -> Finding:
    return _program("nvcc", ["nvcc", "/usr/local/cuda/bin/nvcc"], "twins and kernels in CUDA C++")


def _program(name: str, wanted: list[str], serves: str) -> Finding:
    path = next(filter(None, map(shutil.which, wanted)), None)
    if path is None:
        return Finding(name, False, f"none of {' '.join(wanted)} on PATH", serves)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, False, f"{path}: {error}", serves)
    lines = [line for line in done.stdout.splitlines() if any(map(str.isdigit, line))]
    version = next((line for line in lines if "release" in line), lines[0] if lines else "")
    return Finding(name, done.returncode == 0, f"{path}: {version.strip()}", serves)


def _driver() -> Finding:
    version = Path("/proc/driver/nvidia/version")
    try:
        found = version.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return Finding("NVIDIA driver", False, f"no {version}", "running CUDA kernels")
    return Finding("NVIDIA driver", True, found, "running CUDA kernels")


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries; empty where the system has no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    rows = [line.partition(":") for line in text.split("\n\n")[0].splitlines()]
    return {key.strip(): value.strip() for key, _, value in rows}


def processor() -> str:
    """The processor's model and how many cores this process may use."""
    model = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return f"{model}, {cores} cores usable"


def _features() -> Finding:
    entries = _cpuinfo()
    flags = (entries.get("flags") or entries.get("Features") or "").split()
    found = [flag for flag in FEATURES if flag in flags]
    return Finding("vector units", bool(found), " ".join(found) or "none known", "")


def _targets() -> list[Finding]:
    from tilefoundry.targets.load import documents, load_document

    findings: list[Finding] = []
    for document in documents():
        try:
            load_document(document.id)
            findings.append(Finding(f"target {document.id}", True, document.place, ""))
        except Refusal as refusal:
            says = "; ".join(f"[{d.code}] {d.says}" for d in refusal.diags)
            findings.append(Finding(f"target {document.id}", False, says, ""))
    return findings
