"""From a loaded program to verified TIR, with the memory analysis in its head."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tilefoundry.analyze.report import MEMORY, analyze
from tilefoundry.diag import Diag
from tilefoundry.lang.load import Selected
from tilefoundry.lower import banks, drains, lower, sectors
from tilefoundry.lower.allocate import overfull
from tilefoundry.tir.program import PrimFunc, Program

PRIM, FUNC = re.compile(r"^\s*@prim_func\b", re.M), re.compile(r"^\s*@func\b", re.M)

HEAD = ("peak", "reuse", "units")
"""Families of the memory report that stand in the head of the TIR."""


def finalize(loaded: Selected) -> tuple[Program, list[Diag]]:
    """The lowered program, its kernels verified, and the findings of its memory analysis.

    Capacity alone refuses nothing here: the finding is an error in the head. Everything
    that cannot be lowered, and a kernel that the verifier does not accept, is refused.
    """
    from tilefoundry.verify.accept import accept

    program = lower(loaded.module, loaded.func or "")
    kernels: dict[str, PrimFunc] = {}
    findings: list[Diag] = []
    for name, kernel in program.kernels.items():
        undecided = accept(kernel)
        report = analyze(replace(loaded, func=name), [MEMORY], {}, None)
        lines = [line.text() for line in report.head]
        notes = [line for line in lines if line.split(" ", 1)[0] in HEAD]
        found = list(report.findings)
        placed = None if found else overfull(kernel)
        found += [placed] if placed is not None else []
        for finding in found:
            first = finding.text().splitlines()[0]
            notes.append(f"error {first[first.find('[') :]}")
        notes += [*banks.notes(kernel), *sectors.notes(kernel), *drains.notes(kernel), *undecided]
        findings += found
        kernels[name] = replace(kernel, notes=tuple(notes))
    return replace(program, kernels=kernels), findings


def written(path: str) -> Program | None:
    """The program of a file of TIR, its kernels verified; None for any other file."""
    from tilefoundry.tir.parse import parse_program
    from tilefoundry.verify.accept import accept

    if not Path(path).is_file():
        return None
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    if not PRIM.search(text) or FUNC.search(text):
        return None
    program = parse_program(text, path)
    for kernel in program.kernels.values():
        accept(kernel)
    return program
