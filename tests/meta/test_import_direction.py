"""Imports point left only, whether written at the top of a file or in a function."""

import ast
from pathlib import Path

import pytest
from sources import FILES, PACKAGE, tree

ORDER = [
    {"diag", "quantity"},
    {"layout"},
    {"ir"},
    {"ops"},
    {"targets", "target"},
    {"lang", "check", "analyze", "evaluate", "dsl", "runtime", "spec"},
    {"models"},
    {"tir"},
    {"lower", "verify", "interpret"},
    {"emit"},  # targets/*/emit.py
    {"build", "judge", "plan", "profile"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def part(module):
    """The part of the package that a dotted module or a path within it belongs to."""
    if len(module) >= 3 and module[0] == "targets" and module[2].startswith("emit"):
        return "emit"
    if len(module) >= 3 and module[0] == "targets" and module[2] == "host":
        return "build"
    return module[0]


def imported(path, tree):
    """Dotted names within the package that a file imports, with their lines."""
    here = path.parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("tilefoundry."):
                    yield alias.name.split(".")[1:], node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = list(here[: len(here) - node.level + 1])
            elif node.module and node.module.split(".")[0] == "tilefoundry":
                base = []
            else:
                continue
            below = (node.module or "").split(".")
            dotted = base + [name for name in below if name and name != "tilefoundry"]
            if dotted:
                yield dotted, node.lineno
            else:
                yield from (([alias.name], node.lineno) for alias in node.names)


def own(path):
    module = [*path.parts[:-1], path.stem]
    return module[:-1] if module[-1] == "__init__" and len(module) > 1 else module


MODULES = [path for path in FILES if path != Path("__init__.py")]


def test_every_part_has_a_place():
    parts = {path.parts[0].removesuffix(".py") for path in MODULES}
    assert parts <= set(RANK), "give each part of the package a place in ORDER"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_left(path):
    here = part(own(path))
    wrong = []
    for dotted, line in imported(path, tree(path)):
        if not (PACKAGE / dotted[0]).is_dir() and not (PACKAGE / f"{dotted[0]}.py").is_file():
            continue  # a value of the package itself, such as its version
        there = part(dotted)
        if RANK[there] > RANK[here]:
            wrong.append(f"{path}:{line} imports {'.'.join(dotted)}: {here} stands before {there}")
    assert wrong == []


def test_layout_and_diag_stand_alone():
    allowed = {"diag": {"diag"}, "quantity": {"quantity"}, "layout": {"layout", "diag"}}
    for path in MODULES:
        here = part(own(path))
        if here in allowed:
            seen = {part(dotted) for dotted, _ in imported(path, tree(path))}
            assert seen <= allowed[here], path
