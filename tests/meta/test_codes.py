"""Codes and their pages: each raised code has a page, each page is raised, no field lacks."""

import ast
import string

import pytest
from sources import FILES, tree

from tilefoundry import diag

WITHOUT_FIELDS = {"notes", "span"}


def calls():
    """(place, call) of every ``refuse(...)`` and ``Diag(...)`` in the package."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in ("refuse", "Diag"):
                    yield f"{path}:{node.lineno}", name, node


def constants(node):
    """The strings that an expression can be, where it says so itself."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=other):
            return constants(body) | constants(other)
        case _:
            return set()


def raised():
    return [
        (place, code, node)
        for place, _, node in calls()
        for argument in node.args[:1]
        for code in sorted(constants(argument))
    ]


def test_every_raised_code_has_a_page():
    known = set(diag.codes())
    missing = sorted({f"{code} ({place})" for place, code, _ in raised() if code not in known})
    assert not missing


def test_every_page_is_raised():
    written = {
        node.value
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(set(diag.codes()) - written) == []


def fields(code):
    """The names that the templates of a code's page need."""
    page = diag.page(code)
    templates = (page.says, page.expected, page.found, page.fix)
    parsed = [part for words in templates for part in string.Formatter().parse(words)]
    return {name for _, name, _, _ in parsed if name is not None}


def test_every_raised_code_fills_its_templates():
    known = set(diag.codes())
    lacking = []
    for place, name, node in calls():
        plain = name == "refuse" and isinstance(node.func, ast.Name)
        if not plain or any(keyword.arg is None for keyword in node.keywords):
            continue
        given = {keyword.arg for keyword in node.keywords} - WITHOUT_FIELDS
        codes = sorted(constants(node.args[0]) & known) if node.args else []
        lacking += [
            f"{place}: {code} lacks {lack}" for code in codes if (lack := fields(code) - given)
        ]
    assert lacking == []


@pytest.mark.parametrize("code", list(diag.codes()))
def test_a_page_is_whole(code):
    page = diag.page(code)
    assert page.exit in (1, 2, 3, 4, 5, 70)
    assert page.says
    assert page.fix or page.exit == diag.BUG
    assert code == code.lower().replace("_", "-")
    # Templates name fields only: no attribute, index or conversion.
    assert all(name.isidentifier() for name in fields(code))
    head = page.says, page.expected, page.found, page.fix
    assert not any(len(words) > 200 for words in head)
