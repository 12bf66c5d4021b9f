"""What a twin's file seems to implement, read off its text before anything of it runs.

Only what is begun early depends on it: the file itself says later what it implements.
"""

from __future__ import annotations

import ast
from pathlib import Path

LONGEST = 1 << 20
"""Characters of a file that is looked into."""


def foreseen(path: str, selector: str | None) -> tuple[str, str] | None:
    """The file and the selector of the HIR that the twin at ``path`` seems to implement."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = ast.parse(text) if len(text) <= LONGEST else ast.Module([], [])
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    name, _, func = (selector or "").partition(".")
    twins = [(c.name, m) for c in tree.body if isinstance(c, ast.ClassDef) if (m := _module(c))]
    found = [module for twin, module in twins if name in ("", twin)]
    if not found:
        return None
    for stmt in tree.body:
        if isinstance(stmt, ast.ImportFrom) and stmt.module and not stmt.level:
            for alias in stmt.names:
                if (alias.asname or alias.name) == found[-1]:
                    file = Path(path).parent.joinpath(*stmt.module.split(".")).with_suffix(".py")
                    written = alias.name + (f".{func}" if func else "")
                    return (str(file), written) if file.is_file() else None
    return None


def looks_like_twin(path: str) -> bool:
    """Whether a file may declare a twin."""
    try:
        return "runtime_module" in Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _module(node: ast.ClassDef) -> str:
    """What ``@runtime_module(NAME)`` names; empty without it."""
    for made in node.decorator_list:
        if isinstance(made, ast.Call) and len(made.args) == 1:
            called = made.func
            word = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if word == "runtime_module" and isinstance(made.args[0], ast.Name):
                return made.args[0].id
    return ""
