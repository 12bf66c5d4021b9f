"""Every public name of the layout package has its law, by the test's name.

A function ``f`` needs a test ``test_f...``, a public member ``m`` of a class
``test_<layout|swizzle|composed>_m...``; ``test_f_and_g...`` serves both.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest

import tilefoundry.layout as layout
from tilefoundry.layout import ComposedLayout, Layout, Swizzle

CLASSES = {"layout": Layout, "swizzle": Swizzle, "composed": ComposedLayout}
OPERATORS = ("__call__", "__getitem__")


def defined():
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.name


NAMES = sorted(set(defined()))
FUNCTIONS = sorted(n for n in layout.__all__ if inspect.isfunction(getattr(layout, n)))
FIELDS = {f for cls in CLASSES.values() for f in cls.__dataclass_fields__}
MEMBERS = sorted(
    (prefix, member.strip("_"))
    for prefix, cls in CLASSES.items()
    for member in vars(cls)
    if (not member.startswith("_") and member not in FIELDS) or member in OPERATORS
)


def has_law(prefix, name):
    pattern = re.compile(rf"test_{prefix}(\w+_and_)?{name}(_|$)")
    return any(map(pattern.match, NAMES))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_has_a_law(name):
    assert has_law("", name), f"no test is named test_{name}..."


@pytest.mark.parametrize(("prefix", "member"), MEMBERS)
def test_every_public_member_has_a_law(prefix, member):
    assert has_law(f"{prefix}_", member), f"no test is named test_{prefix}_{member}..."


def test_the_lists_are_not_empty():
    assert len(FUNCTIONS) > 20
    assert len(MEMBERS) > 25
