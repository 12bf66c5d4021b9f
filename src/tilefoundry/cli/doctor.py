"""What this machine can do: interpreter, torch, compilers, processor, targets."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tilefoundry.build.finding import Finding, model, program
from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import json_option
from tilefoundry.diag import Refusal

if TYPE_CHECKING:
    from tilefoundry.targets import Target

PROBE_SECONDS = 120
PROBE = """
import torch
names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
print(torch.__version__, *(names or ["no device"]), sep="; ")
"""


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
    findings = [_python(), _torch(), *([_devices()] if probe else []), _c_compiler()]
    findings += [Finding("processor", True, processor(), ""), *_families()]
    targets = _targets()
    exit = 0 if all(finding.there for finding in targets) else 4
    findings += [_fitting(), *targets]
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
        found = version("torch")
    except PackageNotFoundError:
        return Finding("torch", False, "pip install 'tilefoundry[torch]'", serves)
    return Finding("torch", True, found + _uncompiled("torch"), serves)


def _uncompiled(package: str) -> str:
    """That Python compiles ``package`` anew in each process, which takes seconds, and what ends
    that; empty where its bytecode is kept."""
    from importlib.util import cache_from_source, find_spec

    spec = find_spec(package)
    if spec is None or spec.origin is None or os.path.exists(cache_from_source(spec.origin)):
        return ""
    folder = os.path.dirname(spec.origin)
    return f", without bytecode: imports take longer; python -m compileall -q {folder}"


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
    return program("C compiler", wanted, "twins and kernels in C")


def processor() -> str:
    """The processor's model and how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return f"{model()}, {cores} cores usable"


def _families() -> list[Finding]:
    """What each of our families of hardware looks for."""
    from tilefoundry.targets.folder import shipped

    return [finding for module in shipped("host.doctor") for finding in module.findings()]


def _devices_stated() -> list[Target]:
    """Every device that a valid document states."""
    from tilefoundry.targets import Architecture
    from tilefoundry.targets.load import documents, load_document, load_target

    out: list[Target] = []
    for document in documents():
        with suppress(Refusal):
            if not isinstance(load_document(document.id), Architecture):
                out.append(load_target(document.id))
    return out


def _lacks(target: Target) -> tuple[str, ...]:
    """What this machine lacks of what code for ``target`` needs."""
    from tilefoundry.build import host
    from tilefoundry.targets.folder import find_folder

    folder = find_folder(target.family)
    own = folder.module("host.doctor") if folder else None
    if own is not None and hasattr(own, "lacks"):
        return own.lacks(target)
    return host(target.family, "machine").missing(target.capabilities)


def _fitting() -> Finding:
    """Of each family the target whose code runs here, with the most instructions."""
    best: dict[str, Target] = {}
    for target in _devices_stated():
        known = best.get(target.family)
        if not _lacks(target) and (
            known is None or len(target.capabilities) > len(known.capabilities)
        ):
            best[target.family] = target
    found = ", ".join(f"{t.id} ({family})" for family, t in best.items())
    serves = "a module's target: its code runs here; target probe measures this machine's figures"
    return Finding("fitting targets", bool(best), found or "none", serves)


def _targets() -> list[Finding]:
    from tilefoundry.targets.load import documents, load_document

    stated = {target.id: target for target in _devices_stated()}
    findings: list[Finding] = []
    for document in documents():
        try:
            load_document(document.id)
            says = document.place
            if document.id in stated:
                lacks = ", ".join(_lacks(stated[document.id]))
                says += f"; this machine lacks {lacks}" if lacks else "; its code runs here"
            findings.append(Finding(f"target {document.id}", True, says, ""))
        except Refusal as refusal:
            says = "; ".join(f"[{d.code}] {d.says}" for d in refusal.diags)
            findings.append(Finding(f"target {document.id}", False, says, ""))
    return findings
