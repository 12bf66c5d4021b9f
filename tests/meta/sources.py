"""The package's own source files as syntax trees."""

import ast
from functools import cache
from pathlib import Path

import tilefoundry

PACKAGE = Path(tilefoundry.__file__).parent
REPOSITORY = Path(__file__).parents[2]


FILES = tuple(path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")))
"""Each source file's path within the package."""


@cache
def tree(path):
    """The syntax tree of a file of the package, read when it is asked for."""
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"), str(PACKAGE / path))
