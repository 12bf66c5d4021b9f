"""Whether a report still holds: the check or measurement that it tells of, run again."""

from __future__ import annotations

import click

from tilefoundry.cli.check import require_packages
from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.source import json_option
from tilefoundry.diag import ACCEPTED, REFUSED


@click.command(
    "verify-report",
    epilog=epilog(
        (
            "tilefoundry check twin.py:Twin r.json --inputs random --out output --fn equal --json",
            "tilefoundry verify-report r.json",
        ),
        {
            0: "it holds: the same sources, inputs and predicates give the same verdict, and times "
            "that noise explains",
            1: "it does not hold, or the check is refused now",
            2: "the file is no report that can be run again",
        },
    ),
)
@click.argument("report", metavar="REPORT")
@json_option
def command(report: str, as_json: bool) -> int:
    """Whether a report still holds.

    REPORT is what `check --json` or `measure --json` printed. The same is carried out, with its
    seed, from the folder that this command stands in, and compared: hashes of sources, inputs,
    weights and predicates, the verdict of each call, each output and predicate; and what was
    measured, where versions are the same and the candidate is deterministic. Other versions and
    artefacts are told but do not count. A report that it names for its reference is run again too.

    Of what `measure --json` printed, hashes, of a kernel its files too, inputs at the seed and what
    the floor counts must be equal; a `--checked` report is run again. Times may differ: by the
    quartiles of both, by the `room` of the clocks, by a tenth. Beyond that the ratio to the rival
    counts, or the times where there is none; what either report calls too noisy is only told.
    """
    require_packages()
    from tilefoundry.judge.verify import verify

    found = verify(report)
    exit = ACCEPTED if found.holds else REFUSED
    emit(found.record(), found.text(), as_json, exit=exit)
    return exit
