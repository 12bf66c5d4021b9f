"""schedule finalize: a scheduled program as verified TIR."""

from __future__ import annotations

import os
import sys

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import (
    Source,
    const_option,
    json_option,
    keep_program,
    out_argument,
    source_argument,
)


@click.command(
    "finalize",
    epilog=epilog(
        (
            "tilefoundry schedule finalize optimal.py optimal_tir.py",
            "tilefoundry schedule finalize optimal.py:GEMM.gemm --const M=512 --const N=512",
        ),
        {0: "lowered and verified", 1: "refused: it cannot be lowered, or does not verify"},
    ),
)
@source_argument
@out_argument(program=True)
@const_option
@json_option
def finalize(source: Source, out: str | None, consts: dict[str, object], as_json: bool) -> None:
    """Verified TIR of a scheduled program, with the memory analysis in its head.

    Every operation gets its instruction (the author's, or the single legal default), values
    get their places, and synchronisation is derived and then verified by code of its own.
    Capacity findings stand in the head as errors; they do not refuse the program. A file of
    TIR is verified as it stands, and printed again.
    """
    from tilefoundry.lang.load import load_source
    from tilefoundry.lower.finalize import finalize as lowered
    from tilefoundry.lower.finalize import written
    from tilefoundry.tir.printer import print_program

    if out is not None and os.path.realpath(out) == os.path.realpath(source.path):
        keep_program(out)
    program, findings = written(source.path), []
    if program is None:
        program, findings = lowered(load_source(source.path, source.selector, consts))
    text = print_program(program)
    record = {
        "kernels": [
            {
                "name": k.name,
                "shared_bytes": k.shared_bytes,
                "barriers": len(k.barriers),
                "registers": [
                    {"role": role, "estimate": need, "declared": given or None}
                    for role, need, given in k.registers
                ],
            }
            for k in program.kernels.values()
        ],
        "findings": findings,
        "tir": text,
    }
    emit(record, text, as_json, out)
    if not as_json:
        for finding in findings:  # an error in the head, not a refusal
            print(finding.text().replace("refused [", "error [", 1), file=sys.stderr)
