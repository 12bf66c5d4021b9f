"""What to do, in which order; whole pages with programs that run."""

from __future__ import annotations

import click

from tilefoundry.cli.help import epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.pages import documents, find_document
from tilefoundry.cli.source import json_option

FIRST = "workflow"


@click.command(
    "tutorial",
    epilog=epilog(
        (
            "tilefoundry tutorial",
            "tilefoundry tutorial reference",
            "tilefoundry tutorial schedule > schedule.md",
        ),
    ),
)
@click.argument("page", required=False)
@json_option
def command(page: str | None, as_json: bool) -> None:
    """What to do, in which order.

    Without a page: the workflow, then the list of pages. With one: that page, whole, on
    stdout. The programs on a page can be saved under the names it gives and its commands
    run as printed.
    """
    shown = find_document("tutorial", page or FIRST)
    pages = documents("tutorial")
    text = shown.text
    if page is None:
        width = max(len(other.name) for other in pages)
        lines = [f"  {other.name:<{width}}  {other.title}" for other in pages]
        text += "\n".join(["", "Pages (tilefoundry tutorial PAGE):", *lines]) + "\n"
    record = {
        "page": shown.name,
        "title": shown.title,
        "text": shown.text,
        "pages": [{"name": other.name, "title": other.title} for other in pages],
    }
    emit(record, text, as_json)
