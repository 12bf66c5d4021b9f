"""The package's own source files as syntax trees."""

import ast
from functools import cache
from pathlib import Path

import tilefoundry

PACKAGE = Path(tilefoundry.__file__).parent
REPOSITORY = Path(__file__).parents[2]


@cache
def trees():
    """Each source file's path within the package and its tree."""
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
