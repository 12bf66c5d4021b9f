"""Shipped documents: names, outlines, sections, and what there isn't."""

import json

import pytest

from tilefoundry.cli.pages import Document, documents

PAGE = """\
# The title

Words.

## First part

```text
## not a heading
```

### deeper

## Layout forms & more

End.
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "10-sample.md"
    path.write_text(PAGE)
    return Document(path)


def test_a_document_has_name_title_and_sections(page):
    assert (page.name, page.title) == ("sample", "The title")
    assert [(s.name, s.title) for s in page.sections] == [
        ("first-part", "First part"),
        ("layout-forms-more", "Layout forms & more"),
    ]
    assert page.sections[0].text == "".join(f"{s}\n" for s in PAGE.splitlines()[4:12])
    assert page.sections[1].text == "## Layout forms & more\n\nEnd.\n"


def test_tutorial_prints_whole_pages(command):
    first = documents("tutorial")[0]
    assert first.name == "workflow"
    assert command("tutorial", "workflow").stdout == first.text
    alone = command("tutorial").stdout
    assert alone.startswith(first.text)
    listed = alone.removeprefix(first.text).splitlines()[2:]
    assert [line.split()[0] for line in listed] == [d.name for d in documents("tutorial")]


def test_tutorial_as_json(command):
    record = json.loads(command("tutorial", "--json").stdout)
    assert record["page"] == "workflow"
    assert record["text"] == documents("tutorial")[0].text
    assert [p["name"] for p in record["pages"]] == [d.name for d in documents("tutorial")]


def test_spec_outlines_then_sections(command):
    outline = json.loads(command("spec", "--json").stdout)["documents"]
    assert [entry["name"] for entry in outline] == [d.name for d in documents("spec")]
    for document in documents("spec"):
        assert command("spec", document.name, "--all").stdout == document.text
        for section in document.sections[:2]:
            assert command("spec", document.name, section.name).stdout == section.text


@pytest.mark.parametrize("verb", ["tutorial", "spec"])
def test_an_unknown_page_names_the_known(verb, command):
    answer = command(verb, "no-such-page")
    assert (answer.code, answer.stdout) == (2, "")
    first, expected, found, fix = answer.stderr.splitlines()
    assert first == f"refused [unknown-page] there is no {verb} page `no-such-page`"
    assert expected == "  expected: one of " + " ".join(d.name for d in documents(verb))
    assert found == "  found:    no-such-page"
    assert fix == f"  fix:      `tilefoundry {verb}`"


def test_a_page_nearly_named(command):
    assert "fix:      `tilefoundry tutorial workflow`" in command("tutorial", "workflows").stderr
