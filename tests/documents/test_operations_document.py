"""The document that is collected from the operations' files."""

import re

import pytest

from tilefoundry.cli.pages import find_document, find_section
from tilefoundry.ops import names

PAGE = find_document("spec", "operations")


def facts(name):
    """The lines of an operation's block by their first word."""
    section = find_section("spec", PAGE, name).text
    block = re.search(r"```text\n(.*)```", section, re.DOTALL)
    return dict(line.split(maxsplit=1) for line in block[1].splitlines()) if block else {}


def test_every_operation_has_a_section():
    assert {section.name for section in PAGE.sections} == names()
    headings = re.findall(r"^## (\w+)$", PAGE.text, re.MULTILINE)
    assert headings == sorted(names())
    assert all(section.title for section in PAGE.sections)


def test_a_section_is_the_documents_own():
    assert all(section.text in PAGE.text for section in PAGE.sections)
    assert "`tf.softmax(x, axis=-1)`" in find_section("spec", PAGE, "softmax").text
    assert "`tf.maximum(lhs, rhs)`, also `tf.max`" in find_section("spec", PAGE, "maximum").text


def numbers(line):
    """The extents in the operands of an example line."""
    return [int(n) for n in re.findall(r"(?<=[( ])\d+(?=[,)])", line.split("->")[0])]


def test_a_product_costs_two_operations_for_each_multiply_add():
    m, k, same, n = numbers(facts("matmul")["example"])
    assert same == k
    assert facts("matmul")["cost"] == f"matrix:f32={2 * m * n * k}"


def test_a_softmax_costs_an_exp_for_each_element_and_a_reciprocal_for_each_row():
    # A maximum, a difference, a sum and a product for each element besides.
    rows, columns = numbers(facts("softmax")["example"])[:2]
    special = rows * columns + rows
    assert facts("softmax")["cost"] == f"float:f32={4 * rows * columns} special:f32={special}"


@pytest.mark.parametrize(
    "name, line, words",
    [
        (
            "matmul",
            "split",
            "lhs[0] out[0], lhs[1] partial sum, rhs[0] partial sum, rhs[1] out[1]",
        ),
        ("matmul", "partial", "lhs sum, rhs sum"),
        ("softmax", "split", "x[0] out[0], x[1] refused"),
        ("add", "partial", "together sum"),
        ("transpose", "cost", "none"),
        ("full_like", "partial", "x sum max min whole"),
    ],
)
def test_worked_lines(name, line, words):
    assert facts(name)[line] == words


def test_a_partial_operand_that_is_not_listed_is_not_taken():
    assert "partial" not in facts("exp")
    assert "partial" not in facts("softmax")
