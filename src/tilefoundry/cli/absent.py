"""Commands of the surface that this version doesn't carry out, and what to use instead."""

from __future__ import annotations

import click

from tilefoundry.diag import refuse

# A verb leaves this table the day its file appears: files win over entries.
ABSENT: dict[str, tuple[str, str]] = {
    "mcp": (
        "The same answers over the Model Context Protocol.",
        "the command itself with --json",
    ),
    "profile": (
        "Where the time goes, by line and decision.",
        "`tilefoundry analyze --compute-cost --memory --roofline`",
    ),
}


def absent(name: str) -> click.Command:
    """The stand-in for ``name``: it takes any arguments and refuses, naming another way."""
    line, instead = ABSENT[name]

    @click.command(
        name.split()[-1],
        help=f"{line}\n\nNot in this version; instead: {instead}.",
        short_help=line,
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def command(rest: tuple[str, ...]) -> None:
        refuse("verb-unavailable", verb=name, instead=instead)

    return command
