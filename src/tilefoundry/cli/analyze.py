"""What a program costs and whether it fits, before any kernel exists."""

from __future__ import annotations

import sys

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import (
    Source,
    const_option,
    dim_option,
    json_option,
    one_each,
    out_argument,
    source_argument,
)
from tilefoundry.diag import refuse


@click.command(
    "analyze",
    epilog=epilog(
        (
            "tilefoundry analyze chain.py:Placed.chain",
            "tilefoundry analyze chain.py report.txt --compute-cost --memory --roofline",
            "tilefoundry analyze layer.py:Layer.decode --memory --dim ctx_len=4096 --json",
        ),
        {0: "it fits", 1: "refused: a capacity is exceeded, or the program is not legal"},
    ),
)
@source_argument
@out_argument("[REPORT]")
@click.option("--compute-cost", "compute", is_flag=True, help="Operations by class and dtype.")
@click.option("--memory", is_flag=True, help="Traffic, footprint, reuse, peaks against capacity.")
@click.option("--roofline", is_flag=True, help="Least time per resource; the limit first.")
@click.option("--performance", is_flag=True, help="Predicted time (not in this version).")
@click.option("--topology", metavar="L", help="Figures per unit of level L, and its storages.")
@dim_option
@const_option
@json_option
def command(
    source: Source,
    out: str | None,
    compute: bool,
    memory: bool,
    roofline: bool,
    performance: bool,
    topology: str | None,
    dims: dict[str, list[int]],
    consts: dict[str, object],
    as_json: bool,
) -> int:
    """What a program costs, and whether it fits its target.

    Without a family: the type, storage and local part of every value, and the units in
    force. The report is the author's own source, each line followed by its facts; its head
    is made of `# family key=value` lines. `tilefoundry spec analyze` says what each key is.
    """
    from tilefoundry.analyze.report import COMPUTE, MEMORY, ROOFLINE, analyze
    from tilefoundry.lang.load import load_source

    if performance:
        refuse("analysis-performance", None)
    chosen = ((COMPUTE, compute), (MEMORY, memory), (ROOFLINE, roofline))
    loaded = load_source(source.path, source.selector, consts)
    report = analyze(loaded, [f for f, on in chosen if on], one_each(dims), topology)
    emit(report.record(), report.text(), as_json, out, exit=report.exit)
    if not as_json:
        for diag in report.findings:
            print(diag.text(), file=sys.stderr)
        for why in report.undecided:
            print(f"undecided: {why}", file=sys.stderr)
    return report.exit
