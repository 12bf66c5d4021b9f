"""The rules of language, command and reports; an outline first, then a section."""

from __future__ import annotations

import textwrap

import click

from tilefoundry.cli.help import WIDTH, epilog
from tilefoundry.cli.output import emit
from tilefoundry.cli.pages import Document, documents, find_document, find_section
from tilefoundry.cli.source import json_option


@click.command(
    "spec",
    epilog=epilog(
        (
            "tilefoundry spec",
            "tilefoundry spec language",
            "tilefoundry spec language layout-forms",
            "tilefoundry spec language --all",
        ),
    ),
)
@click.argument("document", required=False)
@click.argument("section", required=False)
@click.option("--all", "whole", is_flag=True, help="The whole document, not its outline.")
@json_option
def command(document: str | None, section: str | None, whole: bool, as_json: bool) -> None:
    """The rules.

    Without a document: all documents and the names of their sections. With one: its outline.
    With a section, by its name or heading: that section, whole.
    """
    if document is None:
        outlines = [_outline(page) for page in documents("spec")]
        text = "\n\n".join(_index_text(page) for page in documents("spec"))
        emit({"documents": outlines}, text or "no documents", as_json)
        return
    page = find_document("spec", document)
    if section is not None:
        found = find_section("spec", page, section)
        record = {"document": page.name, "section": found.name, "text": found.text}
        emit(record, found.text, as_json)
    elif whole:
        emit({**_outline(page), "text": page.text}, page.text, as_json)
    else:
        emit(_outline(page), _outline_text(page), as_json)


def _outline(page: Document) -> dict[str, object]:
    sections = [{"name": section.name, "title": section.title} for section in page.sections]
    return {"name": page.name, "title": page.title, "sections": sections}


def _index_text(page: Document) -> str:
    """A document's title and the names of its sections."""
    names = " ".join(section.name for section in page.sections)
    # Breaking at hyphens would split a name.
    lines = textwrap.wrap(names, WIDTH - 2, break_on_hyphens=False)
    return "\n".join([f"{page.name}: {page.title}", *(f"  {line}" for line in lines)])


def _outline_text(page: Document) -> str:
    width = max((len(section.name) for section in page.sections), default=0)
    lines = [f"  {section.name:<{width}}  {section.title}" for section in page.sections]
    return "\n".join([f"{page.name}: {page.title}", *lines])
