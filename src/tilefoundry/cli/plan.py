"""schedule plan: feasible asynchronous pipelines for a loop."""

from __future__ import annotations

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import (
    Source,
    const_option,
    json_option,
    no_program,
    out_argument,
    source_argument,
)


@click.command(
    "plan",
    epilog=epilog(
        (
            "tilefoundry schedule plan grid.py plans.txt",
            "tilefoundry schedule plan grid.py --all --json",
            "tilefoundry schedule plan grid.py planned.py --apply 3",
        ),
        {0: "there are plans", 1: "refused: no loop to plan, or nothing is feasible"},
    ),
)
@source_argument
@out_argument(program=True)
@const_option
@json_option
@click.option("--best", default=6, show_default=True, type=click.IntRange(1), metavar="N",
              help="Variants to show, the best first.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="One line for every plan, too.")
@click.option("--apply", "number", type=click.IntRange(1), metavar="N",
              help="Answer the program with plan N of the (only) loop in place.")  # fmt: skip
def plan(
    source: Source,
    out: str | None,
    consts: dict[str, object],
    as_json: bool,
    best: int,
    every: bool,
    number: int | None,
) -> None:
    """Feasible asynchronous pipelines for each loop that loads tiles and multiplies them.

    Which copy fills which ring, how many slots, which matrix instruction by which consumers,
    which roles, who stores; each with what it takes of the processor, a lower bound on its
    time, and the text to put in the program's place. Feasible, not claimed optimal.
    """
    from tilefoundry.lang.load import load_source
    from tilefoundry.plan.ask import ask, put
    from tilefoundry.plan.report import answer_record, answer_text

    if number is None:
        no_program(out)
    loaded = load_source(source.path, source.selector, consts)
    if number is not None:
        text = put(loaded, consts, number)
        emit({"program": text}, text, as_json, out)
        return
    answers = ask(loaded, consts, best)
    emit(answer_record(answers, every), answer_text(answers, source.path, every), as_json, out)
